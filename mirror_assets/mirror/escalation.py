"""Telling of failures: what needs a person once, with the command to run; what passes, in short.

A store that refuses its credentials fails for all of its tables in every round. That is one thing
to say, not hundreds: it is said when it begins, and again only after it had passed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import structlog

from mirror_assets.metastore.mirror_queue import ClaimResult, Failure
from mirror_assets.mirror.breakers import store_of

logger = structlog.get_logger(__name__)


class Escalations:
    """What this process has said and not taken back."""

    def __init__(self) -> None:
        #: store or table, and the reason
        self._said: set[tuple[str, str]] = set()

    def tell(self, results: Sequence[ClaimResult]) -> None:
        """Log the failures of one round."""
        failed: defaultdict[tuple[str, str], list[tuple[ClaimResult, Failure]]] = defaultdict(list)
        for result in results:
            if result.published:
                self._take_back(store_of(result.claim.location), result.claim.name)
            if result.failure is not None and result.failure.was_tried:
                scope = _scope(result, result.failure)
                failed[scope, result.failure.reason_code].append((result, result.failure))
        for key, of_key in failed.items():
            self._tell(key, of_key)

    def _tell(self, key: tuple[str, str], failed: list[tuple[ClaimResult, Failure]]) -> None:
        result, failure = failed[0]
        said = {
            "table": result.claim.name,
            "tables": len(failed),
            "version": failure.version,
            "reason": failure.reason_code,
            "error": failure.message,
        }
        if failure.stop_state is not None:
            state = failure.stop_state
            logger.error("table_stopped", **said, state=state, remedy=failure.remedy)
        elif not failure.needs_a_person:
            logger.warning("publish_failed", **said, retry_in_ms=failure.retry_in_ms)
        elif key in self._said:
            logger.debug("publish_failed", **said, retry_in_ms=failure.retry_in_ms)
        else:
            self._said.add(key)
            logger.error("needs_a_person", **said, scope=key[0], remedy=failure.remedy)

    def _take_back(self, *scopes: str) -> None:
        passed = {key for key in self._said if key[0] in scopes}
        for scope, reason in sorted(passed):
            logger.info("passed", scope=scope, reason=reason)
        self._said -= passed


def _scope(result: ClaimResult, failure: Failure) -> str:
    """What it is about: a store with all its tables, or a table; each stop is one's own."""
    is_of_table = failure.stop_state is not None or not failure.is_of_store
    return result.claim.name if is_of_table else store_of(result.claim.location)
