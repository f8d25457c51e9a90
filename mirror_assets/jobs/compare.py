"""What an independent reader of each log sees otherwise than SQL: `compare [NAME...]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirror_assets.findings import errors_of
from mirror_assets.jobs.submitting import Arguments, Document, arguments, reached, run_submitted
from mirror_assets.mirror.bulk.comparing import compare_states


def taken() -> Arguments:
    """The arguments."""
    words = arguments("compare", __doc__)
    words.add_argument("names", nargs="*", metavar="NAME", help="tables; all if none is named")
    return words


def main(spark: SparkSession, args: Sequence[str]) -> Document:
    """The tables that were compared, and what was found."""
    given = taken().parse_args(args)
    workers, access = reached(spark, given)
    found = compare_states(workers, access, given.names or None)
    findings = [finding for of_one in found.values() for finding in of_one]
    return {
        "ok": not errors_of(findings),
        "job": "compare",
        "tables": list(found),
        "findings": [finding.as_dict() for finding in findings],
    }


if __name__ == "__main__":
    sys.exit(run_submitted(main, taken()))
