"""Keeps two follower runs alive: counts the living, fails the dead, asks for what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import dagster as dg

from mirror_assets.defs.follower_run import SILENT_MS, FollowerName
from mirror_assets.defs.keys import FOLLOWER, NOT_ENDED, ROLE_TAG
from mirror_assets.metastore.followers import Heartbeat

WANTED: Final = 2
#: a run may take so long from its start to its first heartbeat
_STARTING_S: Final = 90.0
#: how long a run must have been seen silent, by a database that answered, before it is failed
_PATIENCE_S: Final = 45.0


@dataclass(slots=True)
class Followers:
    """The follower runs as they were found."""

    living: list[str] = field(default_factory=list)
    #: since when each silent one was seen so, seconds since 1970
    silent: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """How many to ask for."""
        return max(0, WANTED - len(self.living))

    def __str__(self) -> str:
        parts = [f"followers: {', '.join(self.living) or 'none'}"]
        if self.silent:
            parts.append(f"silent: {', '.join(run[:8] for run in self.silent)}")
        if self.failed:
            parts.append(f"found dead: {', '.join(run[:8] for run in self.failed)}")
        return "; ".join(parts)


def supervise(
    instance: dg.DagsterInstance,
    beats: list[Heartbeat],
    silent_before: Mapping[str, float],
    now_s: float,
) -> Followers:
    """Look at every follower run that has not ended, and fail those that are dead."""
    named = [(FollowerName.parse(found.owner), found) for found in beats]
    by_run = {name.run_id: (name, found) for name, found in named if name is not None}
    followers = Followers()
    filters = dg.RunsFilter(tags={ROLE_TAG: FOLLOWER}, statuses=NOT_ENDED)
    for record in instance.get_run_records(filters):
        run = record.dagster_run
        name, beat = by_run.get(run.run_id, (None, None))
        started_s = record.start_time or record.create_timestamp.timestamp()
        if run.status is not dg.DagsterRunStatus.STARTED:
            followers.living.append(f"{run.run_id[:8]} {run.status.value.lower()}")
        elif name is not None and name.is_gone:
            _fail(instance, run, followers, "its process is gone")
        elif beat is not None and beat.age_ms < SILENT_MS:
            followers.living.append(f"{run.run_id[:8]} beating")
        elif beat is None and now_s - started_s < _STARTING_S:
            followers.living.append(f"{run.run_id[:8]} starting")
        else:
            since_s = silent_before.get(run.run_id, now_s)
            if now_s - since_s >= _PATIENCE_S:
                _fail(instance, run, followers, f"not heard of for {now_s - since_s:.0f} s")
            else:
                followers.silent[run.run_id] = since_s
    return followers


def _fail(instance: dg.DagsterInstance, run: dg.DagsterRun, followers: Followers, why: str) -> None:
    """Say so in its log; a process that lives all the same loses the role and ends."""
    with suppress(Exception):
        instance.run_launcher.terminate(run.run_id)
    instance.report_run_failed(run, f"The follower is dead: {why}. Another takes over.")
    followers.failed.append(run.run_id)
