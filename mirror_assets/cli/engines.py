"""Where bulk work is done: in this process, or by Spark; chosen by size, and said why.

A Spark session costs about 14 seconds before its first task is done, and a process builds the
checkpoint of a million files in six; so Spark is worth it only far beyond that, or when asked for.
"""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from mirror_assets.cli.session import Session

if TYPE_CHECKING:
    from mirror_assets.pipeline.access import Access
    from mirror_assets.pipeline.work import Workers

#: live files from which the sidecars of one checkpoint are worth a session
_SPARK_FILES: Final = 5_000_000
#: pending commits from which a backfill is, if they are of enough tables to go side by side
_SPARK_COMMITS: Final = 50_000
_SPARK_TABLES: Final = 20
#: commit files from which reading them all is, under the same condition
_SPARK_FILES_READ: Final = 500_000


class Engine(StrEnum):
    """Where the work is done."""

    AUTO = "auto"
    ARROW = "arrow"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An engine, and why it is this one."""

    engine: Engine
    reason: str

    def as_dict(self) -> dict[str, str]:
        """As the `--json` document shows it."""
        return {"engine": self.engine.value, "engine_reason": self.reason}


def choose_for_checkpoint(session: Session, engine: Engine, name: str) -> Choice:
    """By the number of live files, and whether the checkpoint has parts at all."""
    if engine is not Engine.AUTO:
        return Choice(engine=engine, reason="asked for")
    from mirror_assets.delta.features import effective_features

    summary = session.reader.summary(name)
    has_parts = "v2Checkpoint" in effective_features(summary.protocol)
    if has_parts and summary.num_files >= _SPARK_FILES:
        reason = f"{summary.num_files} files in sidecars, from {_SPARK_FILES} on"
        return Choice(engine=Engine.SPARK, reason=reason)
    kind = "in sidecars" if has_parts else "in one file"
    return Choice(engine=Engine.ARROW, reason=f"{summary.num_files} files {kind}")


def choose_for_mirror(session: Session, engine: Engine, tables: list[str] | None) -> Choice:
    """By the number of pending commits, and of the tables that have some."""
    if engine is not Engine.AUTO:
        return Choice(engine=engine, reason="asked for")
    from mirror_assets.metastore.mirror_state import read_mirror_states

    states = read_mirror_states(session.metastore, tables, percentiles=False)
    behind = [state.lag_versions for state in states if state.lag_versions > 0]
    reason = f"{sum(behind)} pending commits of {len(behind)} tables"
    is_bulk = sum(behind) >= _SPARK_COMMITS and len(behind) >= _SPARK_TABLES
    return Choice(engine=Engine.SPARK if is_bulk else Engine.ARROW, reason=reason)


def choose_for_reconcile(
    session: Session, engine: Engine, tables: list[str], *, reads_all: bool
) -> Choice:
    """By the number of commit files that are read, and of the tables that have them."""
    if engine is not Engine.AUTO:
        return Choice(engine=engine, reason="asked for")
    from mirror_assets.metastore.mirror_state import read_mirror_states

    if not reads_all:
        return Choice(engine=Engine.ARROW, reason="only --mode full reads the commit files")
    states = read_mirror_states(session.metastore, tables, percentiles=False)
    files = sum(state.mirrored_version + 1 for state in states)
    reason = f"{files} commit files of {len(states)} tables"
    is_bulk = files >= _SPARK_FILES_READ and len(states) >= _SPARK_TABLES
    return Choice(engine=Engine.SPARK if is_bulk else Engine.ARROW, reason=reason)


@contextmanager
def spark_workers(session: Session) -> Iterator[tuple[Workers, Access]]:
    """A Spark session for one command, and how its tasks reach SQL and the stores."""
    from mirror_assets.jobs.reaching import access_here
    from mirror_assets.pipeline.session import SparkOptions, open_session
    from mirror_assets.pipeline.work import Workers

    settings = session.settings
    access = access_here(settings, session.metastore_url)
    # Spark's own bars, one for each stage, for who is looking
    bars = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    spark = open_session(SparkOptions(master=settings.spark_master, conf=bars))
    try:
        yield Workers(spark), access
    finally:
        spark.stop()
