"""Cuts: a small file in the log of each participant names the versions that belong together.

    all versions of a group are published -> `_delta_log/_cuts/cut-<version>.json`, create-only

A cut's file is there only when all that it names can be read, so the newest file of a table is the
newest complete cut it takes part in. What a crash leaves owing stands in SQL, and is written later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import orjson
import structlog

from mirror_assets.delta.log_paths import CutName
from mirror_assets.errors import DivergenceError, MirrorAssetsError
from mirror_assets.metastore.cuts import (
    Member,
    OwedCut,
    read_owed_cuts,
    record_cut,
    record_cut_failed,
)
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.mirror_queue import ClaimResult
from mirror_assets.mirror.breakers import BreakerOpenError, Breakers
from mirror_assets.mirror.resilience import strategy_for
from mirror_assets.storage.log_store import Different, LogStore, digest

#: versions whose cuts are written in one go
_BATCH: Final = 500
#: how often what others left owing is looked for
_LOOK_S: Final = 10.0

logger = structlog.get_logger(__name__)


def encode_cut(cut: OwedCut) -> bytes:
    """The file: the same bytes, whoever writes it."""
    document = {
        "group": cut.group_id,
        "committedAt": max(member.committed_at_ms for member in cut.members),
        "tables": [
            {
                "table": member.table,
                "location": member.location,
                "version": member.version,
                "sha256": member.sha256,
            }
            for member in cut.members
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


class Cuts:
    """Writes the cuts that are owed."""

    def __init__(
        self, metastore: Metastore, open_store: Callable[[str], LogStore], breakers: Breakers
    ) -> None:
        self._metastore = metastore
        self._open_store = open_store
        self._breakers = breakers
        self._look_at = 0.0

    def follow(self, results: Sequence[ClaimResult]) -> int:
        """After a round: write what it completed, and now and then what others left owing."""
        completes = any(done.group_id is not None for r in results for done in r.published)
        if not completes and time.monotonic() < self._look_at:
            return 0
        self._look_at = time.monotonic() + _LOOK_S
        return self.publish_due()

    def publish_due(self, tables: Sequence[str] | None = None) -> int:
        """Write all cuts that are complete; how many files were written or found."""
        written = 0
        while owed := read_owed_cuts(self._metastore, tables, limit=_BATCH):
            done = sum(self._publish(cut, member) for cut in owed for member in cut.owing)
            written += done
            if done < sum(len(cut.owing) for cut in owed):
                break  # what failed is tried again next time
        return written

    def _publish(self, cut: OwedCut, member: Member) -> bool:
        data, name = encode_cut(cut), CutName(member.version)
        try:
            with self._breakers.guard(member.location):
                put = self._open_store(member.location).put_if_absent(name, data)
            if isinstance(put, Different):
                raise DivergenceError(f"{name} holds {put.found_size} other bytes")
        except MirrorAssetsError as error:
            self._record_failure(member, error)
            return False
        record_cut(self._metastore, member, digest(data), put.resolved_by)
        return True

    def _record_failure(self, member: Member, error: MirrorAssetsError) -> None:
        if isinstance(error, BreakerOpenError):
            return
        error.at(table=member.table, version=member.version)
        strategy = strategy_for(error)
        record_cut_failed(
            self._metastore,
            member,
            reason_code=strategy.reason_code,
            message=str(error),
            is_final=strategy.stop_state is not None,
        )
        logger.warning(
            "cut_failed",
            table=member.table,
            version=member.version,
            reason=strategy.reason_code,
            error=str(error),
        )
