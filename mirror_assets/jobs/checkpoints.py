"""Build checkpoints: `checkpoints [NAME...] [--version N]`.

One table named: the sidecars of a V2 checkpoint are tasks side by side. Several, or none: a task
for each table; none named are all with commits since their checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

from pyspark.sql import SparkSession

from mirror_assets.errors import ConfigurationError
from mirror_assets.jobs.submitting import Arguments, Document, arguments, reached, run_submitted
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.mirror.bulk.checkpoints import build_checkpoint, build_checkpoints


def taken() -> Arguments:
    """The arguments."""
    words = arguments("checkpoints", __doc__)
    words.add_argument("names", nargs="*", metavar="NAME", help="tables; all that need one if none")
    words.add_argument("--version", type=int, metavar="N", help="of one table; the newest if not")
    return words


def main(spark: SparkSession, args: Sequence[str]) -> Document:
    """By table: the checkpoint's version, actions, bytes and seconds."""
    given = taken().parse_args(args)
    if given.version is not None and len(given.names) != 1:
        raise ConfigurationError("--version is of one table: name it, and no other")
    workers, access = reached(spark, given)
    if len(given.names) == 1:
        (name,) = names = given.names
        built = [build_checkpoint(workers, access, name, given.version)]
    else:
        states = read_mirror_states(access.metastore(), given.names or None, percentiles=False)
        names = [
            state.table
            for state in states
            if state.mirrored_version >= 0
            and (given.names or state.checkpoint_version < state.mirrored_version)
        ]
        built = build_checkpoints(workers, access, [(name, None) for name in names])
    made = [{"table": n, **asdict(done)} for n, done in zip(names, built, strict=True)]
    return {"ok": True, "job": "checkpoints", "checkpoints": made}


if __name__ == "__main__":
    sys.exit(run_submitted(main, taken()))
