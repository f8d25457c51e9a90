"""Checkpoints that are due: found in SQL, built one at a time, recorded.

Runs beside publishing and never before it: a checkpoint is of the newest published version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import Final

import structlog

from mirror_assets.errors import MirrorAssetsError, TableStateError
from mirror_assets.metastore.checkpoint_queue import (
    BuiltCheckpoint,
    CheckpointCandidate,
    CheckpointQueue,
)
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.heads import require_not_released
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.breakers import Breakers
from mirror_assets.mirror.checkpoint_policy import CheckpointFacts, CheckpointPolicy, due_by
from mirror_assets.mirror.checkpointer import publish_checkpoint, publish_version_checksum
from mirror_assets.mirror.reader_cost import ReaderCosts
from mirror_assets.mirror.resilience import SLOWLY, strategy_for, wait_ms
from mirror_assets.mirror.v2_checkpoint import PlaceParts
from mirror_assets.storage.log_store import ORPHANED_S, LogStore

#: a dead builder holds others up for so long; a second build would be waste, not harm
_LEASE_MS: Final = 30_000

logger = structlog.get_logger(__name__)


class Checkpoints:
    """Builds the checkpoints of all tables."""

    def __init__(
        self,
        metastore: Metastore,
        open_store: Callable[[str], LogStore],
        breakers: Breakers,
        *,
        owner: str,
        policy: CheckpointPolicy | None = None,
        place_parts: PlaceParts | None = None,
    ) -> None:
        self._metastore = metastore
        self._breakers = breakers
        self._place_parts = place_parts
        self._queue = CheckpointQueue(metastore)
        self._open_store = open_store
        self._owner = owner
        self._policy = policy or CheckpointPolicy()
        self._costs = ReaderCosts(open_store)
        #: by table, the mirrored version that was judged, and when it is judged anew anyway
        self._judged: dict[int, tuple[int, float]] = {}

    def run_due(
        self, tables: Sequence[str] | None = None, *, stop: Event | None = None
    ) -> dict[str, BuiltCheckpoint | MirrorAssetsError]:
        """Build what is due; by table, what came of it."""
        done: dict[str, BuiltCheckpoint | MirrorAssetsError] = {}
        for candidate in self._queue.candidates(tables):
            if stop is not None and stop.is_set():
                break
            outcome = self._build_if_due(candidate)
            if outcome is not None:
                done[candidate.name] = outcome
        return done

    def build(self, name: str, version: int | None = None) -> BuiltCheckpoint:
        """Build one now, due or not; the newest published version by default.

        Raises TableStateError for a version that is not published and for a table that was
        released, and what building one raises.
        """
        record = LogReader(self._metastore).table(name)
        require_not_released(record)
        version = record.mirrored_version if version is None else version
        if not 0 <= version <= record.mirrored_version:
            message = f"version {version} is not published: the log is at {record.mirrored_version}"
            remedy = f"`mirror-assets mirror {name}` publishes what is pending"
            raise TableStateError(message, table=name, version=version, remedy=remedy)
        alone = version < record.first_version
        built = self._publish(name, record.location, version, alone=alone)
        self._queue.record_built(record.table_id, built)
        return built

    def _build_if_due(
        self, candidate: CheckpointCandidate
    ) -> BuiltCheckpoint | MirrorAssetsError | None:
        if not self._breakers.is_closed(candidate.location) or not self._is_due(candidate):
            return None
        if not self._queue.claim(candidate, self._owner, lease_ms=_LEASE_MS):
            return None
        try:
            with self._lease_renewed(candidate), self._breakers.guard(candidate.location):
                built = self._publish(
                    candidate.name,
                    candidate.location,
                    candidate.mirrored_version,
                    alone=not candidate.has_commit_file,
                )
        except MirrorAssetsError as error:
            self._record_failure(candidate, error)
            return error
        self._queue.record_built(candidate.table_id, built)
        logger.info(
            "checkpoint_published",
            table=candidate.name,
            version=built.version,
            actions=built.actions,
            bytes=built.size_bytes,
            seconds=built.seconds,
        )
        return built

    def _is_due(self, candidate: CheckpointCandidate) -> bool:
        """Judge a table when it has moved, and now and then when it has not."""
        judged, again_at = self._judged.get(candidate.table_id, (-1, 0.0))
        if judged == candidate.mirrored_version and time.monotonic() < again_at:
            return False
        since = self._queue.since(candidate)
        facts = CheckpointFacts(
            commits=candidate.commits_since,
            json_bytes=since.json_bytes,
            age_ms=since.oldest_age_ms,
            num_files=candidate.num_files,
            interval=candidate.interval,
            lacks_beginning=candidate.lacks_beginning,
            wait_ms=since.wait_ms,
        )
        again_s = min(60.0, since.wait_ms / 1000) if since.wait_ms else 60.0
        self._judged[candidate.table_id] = (candidate.mirrored_version, time.monotonic() + again_s)
        return self._is_due_by(candidate, facts)

    def _is_due_by(self, candidate: CheckpointCandidate, facts: CheckpointFacts) -> bool:
        """By what SQL knows, and else by what is measured in the store."""
        if due_by(facts, self._policy) is not None:
            return True
        if facts.wait_ms > 0 or facts.commits < 1 or not candidate.has_commit_file:
            return False
        commit_ms = self._costs.commit_ms(
            candidate.location,
            candidate.mirrored_version,
            size=facts.json_bytes // facts.commits,
        )
        return due_by(replace(facts, commit_ms=commit_ms), self._policy) is not None

    def _publish(self, name: str, location: str, version: int, *, alone: bool) -> BuiltCheckpoint:
        started = time.monotonic()
        store = self._open_store(location)
        if not alone:
            publish_version_checksum(self._metastore, store, name, version)
        published = publish_checkpoint(
            self._metastore,
            store,
            name,
            version,
            now_ms=self._queue.now_ms(),
            alone=alone,
            place_parts=self._place_parts,
        )
        seconds = time.monotonic() - started
        if removed := store.remove_orphans(ORPHANED_S):
            logger.info("orphans_removed", table=name, files=len(removed))
        return BuiltCheckpoint(
            version=version,
            is_new=published.is_new,
            actions=published.content.actions,
            size_bytes=published.size_bytes,
            seconds=round(seconds, 3),
            rest_ms=self._policy.rest_ms(seconds),
        )

    def _record_failure(self, candidate: CheckpointCandidate, error: MirrorAssetsError) -> None:
        error.at(table=candidate.name, version=candidate.mirrored_version)
        strategy = strategy_for(error)
        waits = SLOWLY if strategy.stop_state else strategy.waits
        retry_in_ms = wait_ms(waits, self._queue.failures(candidate))
        self._queue.record_failed(
            candidate,
            reason_code=strategy.reason_code,
            message=str(error),
            retry_in_ms=retry_in_ms,
        )
        logger.warning(
            "checkpoint_failed",
            table=candidate.name,
            version=candidate.mirrored_version,
            reason=strategy.reason_code,
            error=str(error),
        )

    @contextmanager
    def _lease_renewed(self, candidate: CheckpointCandidate) -> Iterator[None]:
        done = Event()

        def renew() -> None:
            while not done.wait(_LEASE_MS / 3000):
                try:
                    self._queue.renew(candidate, self._owner, lease_ms=_LEASE_MS)
                except MirrorAssetsError as error:
                    logger.warning("lease_not_renewed", table=candidate.name, error=str(error))

        thread = Thread(target=renew, name="checkpoint-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
