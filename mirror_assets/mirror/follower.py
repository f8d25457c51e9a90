"""`mirror --follow`: one long-lived process that publishes commits as they come.

It waits for commits, publishes, and has checkpoints built beside it by one thread. Several may
follow side by side: leases in SQL decide who publishes which table, and when one dies its leases
lapse. Whatever fails, the database included, is tried again; only a person or a signal ends it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Final

import orjson
import structlog

from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.checkpoint_queue import BuiltCheckpoint
from mirror_assets.metastore.followers import beat, leave
from mirror_assets.metastore.mirror_queue import ClaimResult
from mirror_assets.mirror.escalation import Escalations
from mirror_assets.mirror.service import Mirror

#: how long news of a commit is waited for before looking anyway: retries and lapsed leases
_LOOK_S: Final = 0.2
_HEARTBEAT_S: Final = 5.0
_LONGEST_BACKOFF_S: Final = 15.0

logger = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Followed:
    """What a follower did, by table."""

    commits: Counter[str] = field(default_factory=Counter)
    checkpoints: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


class Follower:
    """Publishes until it is told to stop."""

    def __init__(
        self, mirror: Mirror, tables: Sequence[str] | None = None, *, checkpoint_s: float = 1.0
    ) -> None:
        self._mirror = mirror
        self._tables = tables
        self._checkpoint_s = checkpoint_s
        self._beat_at = 0.0
        self._escalations = Escalations()
        self.followed = Followed()
        #: grows while it works; one that stays tells that a round does not come to its end
        self.rounds = 0

    def run(self, stop: Event) -> Followed:
        """Follow until `stop` is set; the round that is under way is finished and recorded."""
        logger.info("follower_started", owner=self._mirror.owner, tables=self._tables)
        with self._checkpoints_beside(stop):
            failures = 0
            while not stop.is_set():
                try:
                    for _ in self._rounds(stop):
                        failures = 0
                except MirrorAssetsError as error:
                    failures += 1
                    self._back_off(stop, error, failures)
        with suppress(MirrorAssetsError):
            leave(self._mirror.metastore, self._mirror.owner)
        logger.info("follower_stopped", owner=self._mirror.owner)
        return self.followed

    def _rounds(self, stop: Event) -> Iterator[None]:
        with self._mirror.metastore.commits_awaited() as wait:
            while not stop.is_set():
                self._beat()
                results = self._mirror.run_once(self._tables, stop=stop)
                self._note(results)
                self.rounds += 1
                yield
                if not results:
                    wait(_LOOK_S)

    def _back_off(self, stop: Event, error: MirrorAssetsError, failures: int) -> None:
        """The database failed: wait with full jitter, then begin anew."""
        bound_s = min(_LONGEST_BACKOFF_S, 0.25 * 2 ** min(failures, 10))
        seconds = random.uniform(0.05, bound_s)  # noqa: S311 - jitter, no secret
        logger.warning(
            "round_failed", error=str(error), failures=failures, retry_in_s=round(seconds, 2)
        )
        stop.wait(seconds)

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self._beat_at:
            return
        self._beat_at = now + _HEARTBEAT_S
        facts = {
            "tables": self._tables,
            "commits": self.followed.commits.total(),
            "checkpoints": self.followed.checkpoints.total(),
            "failed": self.followed.failed.total(),
        }
        beat(self._mirror.metastore, self._mirror.owner, orjson.dumps(facts).decode())

    def _note(self, results: Sequence[ClaimResult]) -> None:
        published = 0
        for result in results:
            self.followed.commits[result.claim.name] += len(result.published)
            published += len(result.published)
            if result.failure is not None:
                self.followed.failed[result.claim.name] += 1
        self._escalations.tell(results)
        if published:
            lags = [p.lag_ms for r in results for p in r.published]
            logger.info(
                "commits_published",
                commits=published,
                tables=sum(bool(r.published) for r in results),
                worst_lag_ms=max(lags),
            )

    @contextmanager
    def _checkpoints_beside(self, stop: Event) -> Iterator[None]:
        thread = Thread(
            target=_repeat, args=(self._run_checkpoints, stop, self._checkpoint_s), daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _run_checkpoints(self, stop: Event) -> None:
        try:
            done = self._mirror.checkpoints.run_due(self._tables, stop=stop)
        except MirrorAssetsError as error:
            logger.warning("checkpoints_failed", error=str(error))
            return
        built = (name for name, outcome in done.items() if isinstance(outcome, BuiltCheckpoint))
        self.followed.checkpoints.update(built)


def _repeat(work: Callable[[Event], None], stop: Event, pause_s: float) -> None:
    while not stop.wait(pause_s):
        work(stop)
