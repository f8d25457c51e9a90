"""States compared by Spark: a table is a work item, judged by the check that stands in Dagster.

Beside the other jobs, because its readers and models are half of what a worker would import.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from mirror_assets.findings import Finding
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.bulk.runner import Facts, Runner
from mirror_assets.mirror.log_checks import check_log, open_log
from mirror_assets.pipeline.access import Access
from mirror_assets.storage.reader_options import reader_options


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


def _compare(access: Access, name: str) -> Facts:
    """Runs in a task: the same check that stands in Dagster."""
    metastore = access.metastore()
    location = LogReader(metastore).table(name).location
    options = reader_options(access.store_options(), location)
    log = open_log(metastore, access.log_store(location), name, options)
    checked = check_log(log, ["state_matches_sql"])["state_matches_sql"]
    return {"findings": [finding.as_dict() for finding in checked.findings]}
