"""Compare logs with SQL and repair them: `reconcile [NAME...] [--mode MODE] [--apply]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirror_assets.jobs.submitting import Arguments, Document, arguments, reached, run_submitted
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.bulk.reconciling import reconcile_logs
from mirror_assets.mirror.reconciler import Mode, highest


def taken() -> Arguments:
    """The arguments."""
    words = arguments("reconcile", __doc__)
    words.add_argument("names", nargs="*", metavar="NAME", help="tables; all if none is named")
    words.add_argument("--mode", choices=[m.value for m in Mode], default=Mode.FULL.value)
    words.add_argument("--apply", action="store_true", help="make the planned repairs")
    return words


def main(spark: SparkSession, args: Sequence[str]) -> Document:
    """What is wrong, what could be done about it, and what was done."""
    given = taken().parse_args(args)
    workers, access = reached(spark, given)
    names = given.names or [record.name for record in LogReader(access.metastore()).tables()]
    reports = reconcile_logs(workers, access, names, Mode(given.mode), apply=given.apply)
    return {
        "ok": not any(report.has_errors for report in reports),
        "job": "reconcile",
        "tables": len(reports),
        "findings": [finding.as_dict() for report in reports for finding in report.findings],
        "plan": [repair.as_dict() for report in reports for repair in report.plan],
        "applied": [repair.as_dict() for report in reports for repair in report.applied],
        "recommended_next_mode": highest([r.recommended_next_mode for r in reports]).value,
    }


if __name__ == "__main__":
    sys.exit(run_submitted(main, taken()))
