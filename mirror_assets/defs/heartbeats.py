"""The follower's lag heartbeats: recorded only while a table's lag is inside its objective.

So an idle table stays fresh, and a late or dead mirror goes stale by itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import dagster as dg

from mirror_assets.defs.keys import TableKeys
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.mirror_state import PAUSED, MirrorState, read_mirror_states
from mirror_assets.settings import Settings

#: Dagster looks at freshness every thirty seconds
_SHORTEST_S: Final = 30.0
_LOOK_S: Final = 2.0
#: every heartbeat is an event that is kept: many tables beat less often
_PER_TABLE_S: Final = 0.2


class LagBeats:
    """Beats for all tables, each no more often than its freshness needs."""

    def __init__(
        self,
        settings: Settings,
        record: Callable[[dg.AssetMaterialization], object],
        clock: Callable[[], float] = time.monotonic,
        due: dict[str, float] | None = None,
    ) -> None:
        self._settings = settings
        self._record = record
        self._clock = clock
        self._look_at = 0.0
        #: by table, when its next heartbeat is due by the clock; for who keeps it from run to run
        self.due = {} if due is None else due
        self._late: set[str] = set()

    def beat(self, metastore: Metastore, *, seconds: float = math.inf) -> int:
        """Record the heartbeats that are due; their number.

        What is not done after `seconds` is left to the next time, which begins with it.
        """
        if self._clock() < self._look_at:
            return 0
        self._look_at = self._clock() + _LOOK_S
        deadline = time.monotonic() + seconds
        states = read_mirror_states(metastore)
        wait_s = self._interval_s(len(states))
        done = 0
        for state in sorted(states, key=lambda state: self.due.get(state.table, -math.inf)):
            if time.monotonic() >= deadline:
                break
            done += self._beat_one(state, wait_s)
        self.due = {s.table: self.due[s.table] for s in states if s.table in self.due}
        return done

    def _beat_one(self, state: MirrorState, wait_s: float) -> bool:
        if not is_inside(state, self._settings.objective_of(state.table)):
            self._late.add(state.table)
            return False
        is_back = state.table in self._late
        if not is_back and self._clock() < self.due.get(state.table, -math.inf):
            return False
        self._late.discard(state.table)
        self.due[state.table] = self._clock() + wait_s
        self._record(lag_event(state))
        return True

    def _interval_s(self, tables: int) -> float:
        """A quarter of the time after which a missing one warns, where the number allows."""
        wanted = max(_SHORTEST_S, self._settings.freshness_warn / 4, tables * _PER_TABLE_S)
        return min(wanted, self._settings.freshness_warn / 2)


def is_inside(state: MirrorState, objective_s: float) -> bool:
    """Whether the table is as fresh as it should be; one that stopped for a fault is not."""
    return state.lag_ms <= objective_s * 1000 and (not state.is_stopped or state.state == PAUSED)


def lag_event(state: MirrorState) -> dg.AssetMaterialization:
    """The lag now, in numbers that are plotted."""
    metadata: dict[str, dg.MetadataValue] = {
        "lag_seconds": dg.MetadataValue.float(state.lag_ms / 1000),
        "lag_versions": dg.MetadataValue.int(state.lag_versions),
        "head_version": dg.MetadataValue.int(state.head_version),
        "mirrored_version": dg.MetadataValue.int(state.mirrored_version),
    }
    if state.publish_p95_ms is not None:
        metadata["publish_p95_seconds"] = dg.MetadataValue.float(state.publish_p95_ms / 1000)
    return dg.AssetMaterialization(
        TableKeys(state.table).mirror_lag,
        description=f"{state.table} is {state.lag_versions} versions behind SQL",
        metadata=metadata,
    )
