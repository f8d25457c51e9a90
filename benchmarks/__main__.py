"""`python -m benchmarks [subject ...] [--quick]`."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime

from benchmarks import (
    bulk_commit,
    checkpointing,
    commit,
    concurrent,
    conformance,
    encoding,
    following,
    importing,
    publishing,
    reconciling,
    showing,
    spark,
    state,
)
from benchmarks.bench import open_bench
from benchmarks.reporting import report, save, show

SUBJECTS = {
    "commit": commit.run,
    "bulk_commit": bulk_commit.run,
    "concurrent": concurrent.run,
    "state": state.run,
    "importing": importing.run,
    "publishing": publishing.run,
    "encoding": encoding.run,
    "checkpointing": checkpointing.run,
    "reconciling": reconciling.run,
    "following": following.run,
    "showing": showing.run,
    "spark": spark.run,
    "conformance": conformance.run,
}


def main() -> None:
    """Run the subjects one after another; each leaves its results when it is done."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="subject", help=", ".join(SUBJECTS))
    parser.add_argument("--quick", action="store_true", help="a smoke run: the numbers mean little")
    arguments = parser.parse_args()
    if unknown := set(arguments.subjects) - SUBJECTS.keys():
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    for name in arguments.subjects or SUBJECTS:
        began, load = datetime.now(UTC), os.getloadavg()[0]
        with open_bench(quick=arguments.quick) as bench:
            done = report(name, began, load, SUBJECTS[name](bench))
        show(done)
        save(done, quick=arguments.quick)


if __name__ == "__main__":
    main()
