"""Publish what is pending, tables side by side: `backfill [NAME...] [--to-version N]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirror_assets.jobs.submitting import Arguments, Document, arguments, reached, run_submitted
from mirror_assets.metastore.mirror_state import OK, PAUSED, read_mirror_states
from mirror_assets.mirror.bulk.logs import backfill


def taken() -> Arguments:
    """The arguments."""
    words = arguments("backfill", __doc__)
    words.add_argument("names", nargs="*", metavar="NAME", help="tables; all if none is named")
    words.add_argument("--to-version", type=int, metavar="N", help="only up to this version")
    return words


def main(spark: SparkSession, args: Sequence[str]) -> Document:
    """By table: commits that became files, how far the log is, and what it stopped at."""
    given = taken().parse_args(args)
    workers, access = reached(spark, given)
    names = given.names or None
    commits = backfill(workers, access, names, to_version=given.to_version)
    tables = [
        {
            "table": state.table,
            "commits": commits.get(state.table, 0),
            "mirrored_version": state.mirrored_version,
            "state": state.state,
            "reason": state.reason,
            "last_error": state.last_error,
            "failed": bool(state.last_error) or (state.is_stopped and state.state != PAUSED),
        }
        for state in read_mirror_states(access.metastore(), names, percentiles=False)
        if state.table in commits or state.state != OK
    ]
    ok = not any(table["failed"] for table in tables)
    return {"ok": ok, "job": "backfill", "tables": tables}


if __name__ == "__main__":
    sys.exit(run_submitted(main, taken()))
