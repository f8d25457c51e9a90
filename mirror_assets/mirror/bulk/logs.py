"""Logs by Spark: pending commits of many tables published, whole logs rebuilt, states compared.

A table is the smallest work item: its versions are published one after the other. Claims and
fences in SQL keep tasks, retried tasks and mirrors beside them from doing a thing twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Final

import msgspec

from mirror_assets.findings import Finding
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.mirror.bulk.checkpoints import mirror_of
from mirror_assets.mirror.bulk.runner import Facts, Runner
from mirror_assets.mirror.log_checks import check_log, open_log
from mirror_assets.mirror.rebuild import Rebuilt, rebuild
from mirror_assets.pipeline.access import Access
from mirror_assets.storage.reader_options import reader_options

#: tables of one work item: a task is worth starting for many versions
_TABLES_PER_ITEM: Final = 10
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
    groups = [
        behind[start : start + _TABLES_PER_ITEM]
        for start in range(0, len(behind), _TABLES_PER_ITEM)
    ]
    facts = workers.run(groups, partial(_publish, access, to_version))
    return {name: count for fact in facts for name, count in fact["commits"].items()}


def rebuild_logs(workers: Runner, access: Access, places: Mapping[str, str]) -> dict[str, Rebuilt]:
    """Publish whole logs from SQL at empty places, given by table."""
    wanted = list(places.items())
    facts = workers.run(wanted, partial(_rebuild, access))
    return {
        name: msgspec.convert(fact, Rebuilt) for (name, _), fact in zip(wanted, facts, strict=True)
    }


def compare_states(
    workers: Runner, access: Access, names: Sequence[str] | None = None
) -> dict[str, list[Finding]]:
    """What an independent reader of each log sees otherwise than SQL; by table, all or these.

    Logs of released tables belong to others, and are compared only if they are asked for.
    """
    tables = LogReader(access.metastore()).tables()
    listed = list(names or [t.name for t in tables if t.state != TableState.RELEASED])
    facts = workers.run(listed, partial(_compare, access))
    return {
        name: msgspec.convert(fact["findings"], list[Finding])
        for name, fact in zip(listed, facts, strict=True)
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


def _compare(access: Access, name: str) -> Facts:
    """Runs in a task: the same check that stands in Dagster."""
    metastore = access.metastore()
    location = LogReader(metastore).table(name).location
    options = reader_options(access.store_options(), location)
    log = open_log(metastore, access.log_store(location), name, options)
    checked = check_log(log, ["state_matches_sql"])["state_matches_sql"]
    return {"findings": [finding.as_dict() for finding in checked.findings]}
