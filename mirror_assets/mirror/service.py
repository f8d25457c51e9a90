"""The mirror put together: queue, stores, breakers, engine and checkpoints of one process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Event
from typing import Final
from uuid import uuid4

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.mirror_queue import ClaimResult, MirrorQueue
from mirror_assets.metastore.mirror_state import MirrorState, read_mirror_states
from mirror_assets.mirror.breakers import Breakers
from mirror_assets.mirror.checkpoint_policy import CheckpointPolicy
from mirror_assets.mirror.checksums import publish_checksums
from mirror_assets.mirror.cuts import Cuts
from mirror_assets.mirror.engine import EngineSettings, MirrorEngine
from mirror_assets.mirror.maintenance import Checkpoints
from mirror_assets.mirror.store_trust import StoreTrust, trusted
from mirror_assets.storage.log_store import LogStore
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store

#: the longest nap of one who waits for others' leases or for a failed table's next try
_NAP_S: Final = 0.25


class Mirror:
    """Publishes and checkpoints the tables of a metastore."""

    def __init__(
        self,
        metastore: Metastore,
        *,
        options: StoreOptions | None = None,
        allowed_roots: Sequence[str] = (),
        settings: EngineSettings | None = None,
        policy: CheckpointPolicy | None = None,
        open_log: Callable[[str], LogStore] | None = None,
        single_writer: Collection[str] = (),
        checksums: bool = False,
        owner: str | None = None,
    ) -> None:
        self.metastore = metastore
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        options = options or StoreOptions()
        trust = StoreTrust(metastore, options.endpoint)
        self.open_store = open_log or trusted(
            partial(open_store, options=options, allowed_roots=allowed_roots), trust, single_writer
        )
        breakers = Breakers(metastore)
        self.engine = MirrorEngine(
            MirrorQueue(metastore),
            self.open_store,
            breakers,
            owner=self.owner,
            settings=settings,
        )
        self._checksums = checksums
        self.cuts = Cuts(metastore, self.open_store, breakers)
        self.checkpoints = Checkpoints(
            metastore, self.open_store, breakers, owner=self.owner, policy=policy
        )

    def run_once(
        self,
        tables: Sequence[str] | None = None,
        *,
        to_version: int | None = None,
        stop: Event | None = None,
    ) -> list[ClaimResult]:
        """One round of the engine, the cuts that it completed, and checksums where wanted."""
        results = self.engine.run_once(tables, to_version=to_version, stop=stop)
        self.cuts.follow(results)
        if self._checksums:
            publish_checksums(self.metastore, self.open_store, results)
        return results

    def settle(
        self,
        tables: Sequence[str] | None = None,
        *,
        to_version: int | None = None,
        patience_s: float,
    ) -> list[ClaimResult]:
        """Publish what is pending now; what fails, or is in other hands, is waited for.

        Ends when every table has come to the head it had at the beginning (or to `to_version`),
        or has stopped, or after `patience_s`. Raises TableNotFoundError for an unknown name.
        """
        deadline = time.monotonic() + patience_s
        goals = self._goals(tables, to_version)
        self.cuts.publish_due(tables)
        results: list[ClaimResult] = []
        while goals:
            batch = self.run_once(list(goals), to_version=to_version)
            results += batch
            for result in batch:
                if result.mirrored_version >= goals.get(result.claim.name, 0):
                    goals.pop(result.claim.name, None)
            if batch or not goals:
                continue
            waiting = self._waiting(goals)
            rest_s = deadline - time.monotonic()
            if not waiting or rest_s <= 0:
                break
            goals = {state.table: goals[state.table] for state in waiting}
            soonest_s = min(state.next_attempt_in_ms for state in waiting) / 1000
            time.sleep(min(rest_s, max(0.02, min(soonest_s, _NAP_S))))
        return results

    def _goals(self, tables: Sequence[str] | None, to_version: int | None) -> dict[str, int]:
        goals = {}
        for state in read_mirror_states(self.metastore, tables, percentiles=False):
            goal = state.head_version
            if to_version is not None:
                goal = min(goal, to_version)
            if state.mirrored_version < goal and not state.is_stopped:
                goals[state.table] = goal
        return goals

    def _waiting(self, goals: dict[str, int]) -> list[MirrorState]:
        states = read_mirror_states(self.metastore, list(goals), percentiles=False)
        return [s for s in states if s.mirrored_version < goals[s.table] and not s.is_stopped]
