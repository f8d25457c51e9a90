"""Take tables over, side by side: `imports NAME=URI... [--history H] [--dry-run]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

from pyspark.sql import SparkSession

from mirror_assets.jobs.submitting import (
    Arguments,
    Document,
    arguments,
    places,
    reached,
    run_submitted,
)
from mirror_assets.metastore.importer import ImportReport
from mirror_assets.mirror.bulk.imports import AlreadyOurs, ImportRefusal, Outcome, import_tables


def taken() -> Arguments:
    """The arguments."""
    words = arguments("imports", __doc__)
    words.add_argument("places", nargs="+", metavar="NAME=URI", help="a table's name, and its root")
    words.add_argument(
        "--history",
        choices=("full", "checkpoint"),
        default="full",
        help="all commits, or those since the newest checkpoint",
    )
    words.add_argument("--dry-run", action="store_true", help="look, and write nothing")
    return words


def main(spark: SparkSession, args: Sequence[str]) -> Document:
    """By table: what was taken over, or why not; `outcome` says which."""
    given = taken().parse_args(args)
    workers, access = reached(spark, given)
    outcomes = import_tables(
        workers, access, places(given.places), history=given.history, dry_run=given.dry_run
    )
    ok = not any(isinstance(outcome, ImportRefusal) for outcome in outcomes.values())
    tables = [{"outcome": _word(outcome), **asdict(outcome)} for outcome in outcomes.values()]
    return {"ok": ok, "job": "imports", "tables": tables}


def _word(outcome: Outcome) -> str:
    match outcome:
        case ImportReport():
            return "importable" if outcome.is_dry_run else "imported"
        case AlreadyOurs():
            return "already_ours"
        case ImportRefusal():
            return "refused"


if __name__ == "__main__":
    sys.exit(run_submitted(main, taken()))
