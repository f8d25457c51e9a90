"""Publish whole logs from SQL at empty places: `rebuild NAME=URI...`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from mirror_assets.jobs.submitting import (
    Arguments,
    Document,
    arguments,
    places,
    reached,
    run_submitted,
)
from mirror_assets.mirror.bulk.logs import rebuild_logs


def taken() -> Arguments:
    """The arguments."""
    words = arguments("rebuild", __doc__)
    words.add_argument("places", nargs="+", metavar="NAME=URI", help="a table, and an empty place")
    return words


def main(spark: SparkSession, args: Sequence[str]) -> Document:
    """By table: commits and the versions of checkpoints that were written."""
    given = taken().parse_args(args)
    workers, access = reached(spark, given)
    wanted = places(given.places)
    built = rebuild_logs(workers, access, wanted)
    logs = [
        {
            "table": name,
            "location": wanted[name],
            "commits": done.commits,
            "checkpoints": list(done.checkpoints),
            "no_checkpoint": done.no_checkpoint,
        }
        for name, done in built.items()
    ]
    return {"ok": True, "job": "rebuild", "logs": logs}


if __name__ == "__main__":
    sys.exit(run_submitted(main, taken()))
