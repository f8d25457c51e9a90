"""What all jobs have in common: their arguments, their access, and how they end.

0: done; 1: done, and something in the answer needs a person; 2: not done, the answer is the error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import orjson
from pyspark.sql import SparkSession

from mirror_assets.errors import ConfigurationError, MirrorAssetsError
from mirror_assets.jobs.reaching import access_here
from mirror_assets.mirror.bulk.runner import Runner
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.session import SparkOptions, open_session
from mirror_assets.pipeline.work import Workers
from mirror_assets.settings import load_settings, redact

#: the answer; `ok` says whether nothing in it needs a person
Document = dict[str, Any]
Main = Callable[[SparkSession, Sequence[str]], Document]
CLEAN, FOUND, FAILED = 0, 1, 2
_REMEDY: Final = "`--help` shows what the job takes"


class Arguments(argparse.ArgumentParser):
    """Says in our words what is wrong with them."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigurationError: who calls `main` is no shell that one could leave."""
        raise ConfigurationError(f"{self.prog}: {message}", remedy=_REMEDY)


def arguments(job: str, description: str | None) -> Arguments:
    """What every job takes."""
    taken = Arguments(prog=job, description=description)
    taken.add_argument(
        "--metastore",
        metavar="URL",
        help="the metastore; as the settings of each machine say, if not given",
    )
    taken.add_argument(
        "--master",
        metavar="URL",
        help="where Spark runs; as spark-submit was told, if not given. `main` takes no notice",
    )
    return taken


def reached(spark: SparkSession, given: argparse.Namespace) -> tuple[Runner, Access]:
    """The session's workers, and how they reach SQL and the stores."""
    return Workers(spark), access_here(load_settings().settings, given.metastore)


def run_submitted(main: Main, taken: Arguments, words: Sequence[str] | None = None) -> int:
    """Open the session, run the job, and write its answer to stdout; the exit code."""
    args = list(sys.argv[1:] if words is None else words)
    try:
        given = taken.parse_args(args)
        spark = open_session(SparkOptions(master=given.master, app_name=taken.prog))
        try:
            document = main(spark, args)
        finally:
            spark.stop()
        code = CLEAN if document["ok"] else FOUND
    except MirrorAssetsError as error:
        told = {key: redact(v) if isinstance(v, str) else v for key, v in error.as_dict().items()}
        document, code = {"ok": False, "error": told}, FAILED
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()
    return code


def places(words: Sequence[str]) -> dict[str, str]:
    """`NAME=URI` as a mapping; ConfigurationError for what is none, or names a table twice."""
    found: dict[str, str] = {}
    for word in words:
        name, is_pair, place = word.partition("=")
        if not (name and is_pair and place) or name in found:
            raise ConfigurationError(f"{word!r} is no NAME=URI of a table of its own")
        found[name] = place
    return found
