"""Logs by Spark: pending commits of many tables published, whole logs rebuilt.

A table is the smallest work item: its versions are published one after the other. Claims and
fences in SQL keep tasks, retried tasks and mirrors beside them from doing a thing twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final

import msgspec

from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.mirror.bulk.checkpoints import mirror_of
from mirror_assets.mirror.bulk.runner import Facts, Runner, in_groups
from mirror_assets.mirror.rebuild import Rebuilt, rebuild
from mirror_assets.pipeline.access import Access

_PATIENCE_S: Final = 120.0


def backfill(
    workers: Runner,
    access: Access,
    names: Sequence[str] | None = None,
    *,
    to_version: int | None = None,
) -> dict[str, int]:
    """Publish what is pending; by table, how many commits became files.

    What a table stops at is its state in SQL, as it is in process: a failed table is no error
    here, and does not hold the others up.
    """
    behind = [
        state.table
        for state in read_mirror_states(access.metastore(), names, percentiles=False)
        if state.lag_versions > 0 and not state.is_stopped
    ]
    facts = workers.run(in_groups(behind), partial(_publish, access, to_version))
    return {name: count for fact in facts for name, count in fact["commits"].items()}


def rebuild_logs(workers: Runner, access: Access, places: Mapping[str, str]) -> dict[str, Rebuilt]:
    """Publish whole logs from SQL at empty places, given by table."""
    wanted = list(places.items())
    facts = workers.run(wanted, partial(_rebuild, access))
    return {
        name: msgspec.convert(fact, Rebuilt) for (name, _), fact in zip(wanted, facts, strict=True)
    }


def _publish(access: Access, to_version: int | None, names: Sequence[str]) -> Facts:
    """Runs in a task."""
    mirror = mirror_of(access)
    commits = dict.fromkeys(names, 0)
    for result in mirror.settle(names, to_version=to_version, patience_s=_PATIENCE_S):
        commits[result.claim.name] += len(result.published)
    return {"commits": commits}


def _rebuild(access: Access, wanted: tuple[str, str]) -> Facts:
    """Runs in a task."""
    name, place = wanted
    return asdict(rebuild(access.metastore(), name, access.log_store(place)))
