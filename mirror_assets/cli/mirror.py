"""`mirror`, `checkpoint` and `verify-store`: from SQL to the log."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mirror_assets.cli.engines import (
    Choice,
    Engine,
    choose_for_checkpoint,
    choose_for_mirror,
    spark_workers,
)
from mirror_assets.cli.exits import ExitCode, UsageError
from mirror_assets.cli.session import Session
from mirror_assets.delta.actions import INT64_MAX
from mirror_assets.errors import MirrorAssetsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_assets.metastore.checkpoint_queue import BuiltCheckpoint
    from mirror_assets.mirror.follower import Followed
    from mirror_assets.pipeline.access import Access
    from mirror_assets.pipeline.work import Workers
    from mirror_assets.storage.probe import ProbeReport

#: how long a single run waits for what fails, or is in the hands of another mirror
_PATIENCE_S: Final = 15.0


_Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="The tables; all by default.")
]
_Engine = Annotated[Engine, typer.Option(help="In this process (arrow), by Spark, or by size.")]
_ToVersion = Annotated[
    int | None, typer.Option(min=0, max=INT64_MAX, metavar="N", help="Only up to this version.")
]


def mirror(
    session: Session,
    *,
    names: _Names = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Stay, and publish commits as they come.")
    ] = False,
    to_version: _ToVersion = None,
    engine: _Engine = Engine.AUTO,
) -> ExitCode:
    """Publish pending commits to the tables' logs, in order, and the checkpoints that are due."""
    if follow and engine is Engine.SPARK:
        remedy = "use --engine auto: commits that come one by one are published by this process"
        raise UsageError("--follow is not for Spark", remedy=remedy)
    if follow and to_version is not None:
        raise UsageError("--follow has no last version: give it or --to-version, not both")
    tables = _known(session, names or [])
    choice = choose_for_mirror(session, Engine.ARROW if follow else engine, tables, to_version)
    if follow:
        followed = _follow(session, tables)
    elif choice.engine is Engine.SPARK:
        followed = _by_spark(session, tables, to_version)
    else:
        followed = _once(session, tables, to_version)
    return _answer(session, tables, followed, choice, was_following=follow)


def checkpoint(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table.")],
    version: Annotated[
        int | None,
        typer.Option(min=0, max=INT64_MAX, metavar="N", help="A published one; the newest if not."),
    ] = None,
    engine: _Engine = Engine.AUTO,
) -> ExitCode:
    """Build a checkpoint now, verify it, and point at it."""
    choice = choose_for_checkpoint(session, engine, name)
    try:
        if choice.engine is Engine.SPARK:
            with spark_workers(session) as (workers, access):
                built = _spark_checkpoint(workers, access, name, version)
        else:
            built = session.mirror.checkpoints.build(name, version)
    except MirrorAssetsError as exc:
        raise exc.at(table=name) from exc.__cause__
    document = {
        "table": name,
        "version": built.version,
        "actions": built.actions,
        "bytes": built.size_bytes,
        "seconds": built.seconds,
        "is_new": built.is_new,
        **choice.as_dict(),
    }
    session.output.record(document, f"checkpoint of {name}")
    return ExitCode.CLEAN


def verify_store(
    session: Session,
    *,
    location: Annotated[str, typer.Argument(metavar="URI", help="A place in the store.")],
) -> ExitCode:
    """Race the store: does it create a file only where there is none?"""
    from mirror_assets.cli.locations import require_location
    from mirror_assets.storage import probe

    settings = session.settings
    place = require_location(location, settings)
    report = probe.verify_store(
        place, settings.store_options(), allowed_roots=settings.allowed_roots
    )
    session.output.findings(report.findings)
    document = {
        "location": report.location,
        "safe": report.safe,
        "remembered": _remember(session, report),
        "findings": [finding.as_dict() for finding in report.findings],
        "facts": report.facts,
    }
    session.output.record(document, "the store is safe" if report.safe else "do not mirror there")
    return ExitCode.CLEAN if report.safe else ExitCode.REFUSED


def _remember(session: Session, report: ProbeReport) -> bool:
    """Let the mirrors know, through SQL; whether that could be: `init` may come later."""
    from mirror_assets.metastore.store_facts import StoreFacts, remember_store
    from mirror_assets.mirror.breakers import store_of

    errors = [finding.message for finding in report.findings if finding.severity == "error"]
    facts = StoreFacts(
        store=store_of(report.location),
        endpoint=session.settings.store_endpoint,
        safe=report.safe,
        found_by="verify-store",
        reason="; ".join(errors),
    )
    try:
        remember_store(session.metastore, facts)
    except MirrorAssetsError as exc:
        session.output.note(f"not remembered: {exc.message}")
        return False
    return True


def publish_soon(
    session: Session, tables: Sequence[str], seconds: float, versions: dict[str, int] | None = None
) -> bool:
    """Try to publish within so many seconds; whether the versions are in the log. Never raises.

    What was committed stays committed: whatever fails here, a mirror does later.
    """
    from mirror_assets.metastore.mirror_state import read_mirror_states

    try:
        session.mirror_within(seconds).settle(tables, patience_s=seconds)
        states = read_mirror_states(session.metastore, tables, percentiles=False)
    except MirrorAssetsError as exc:
        session.output.note(f"committed, and not in the log yet: {exc.message}")
        return False
    for state in states:
        if state.last_error is not None:
            session.output.note(f"committed, and not in the log yet: {state.last_error}")
    wanted = versions or {}
    return all(s.mirrored_version >= wanted.get(s.table, s.head_version) for s in states)


def _known(session: Session, names: list[str]) -> list[str] | None:
    from mirror_assets.metastore.mirror_state import read_mirror_states

    if not names:
        return None
    read_mirror_states(session.metastore, names, percentiles=False)
    return names


def _once(session: Session, tables: list[str] | None, to_version: int | None) -> Followed:
    from mirror_assets.metastore.checkpoint_queue import BuiltCheckpoint
    from mirror_assets.mirror.follower import Followed

    results = session.mirror.settle(tables, to_version=to_version, patience_s=_PATIENCE_S)
    commits: Counter[str] = Counter()
    for result in results:
        commits[result.claim.name] += len(result.published)
    built = session.mirror.checkpoints.run_due(tables)
    return Followed(
        commits=commits,
        checkpoints=Counter(n for n, done in built.items() if isinstance(done, BuiltCheckpoint)),
    )


def _by_spark(session: Session, tables: list[str] | None, to_version: int | None) -> Followed:
    from mirror_assets.mirror.bulk.checkpoints import build_due_checkpoints
    from mirror_assets.mirror.bulk.logs import backfill
    from mirror_assets.mirror.follower import Followed

    with spark_workers(session) as (workers, access):
        commits = backfill(workers, access, tables, to_version=to_version)
        built = build_due_checkpoints(workers, access, tables)
    return Followed(commits=Counter(commits), checkpoints=Counter(built))


def _spark_checkpoint(
    workers: Workers, access: Access, name: str, version: int | None
) -> BuiltCheckpoint:
    from mirror_assets.mirror.bulk.checkpoints import build_checkpoint

    return build_checkpoint(workers, access, name, version)


def _follow(session: Session, tables: list[str] | None) -> Followed:
    from mirror_assets.mirror.follower import Follower

    with _told_to_stop() as stop:
        return Follower(session.mirror, tables).run(stop)


@contextmanager
def _told_to_stop() -> Iterator[Event]:
    """Set by the first SIGTERM or SIGINT; a second one ends the process at once."""
    stop = Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    before = {int(number): signal.getsignal(number) for number in signals}

    def handle(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in signals:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)


def _answer(
    session: Session,
    tables: list[str] | None,
    followed: Followed,
    choice: Choice,
    *,
    was_following: bool,
) -> ExitCode:
    from mirror_assets.metastore.mirror_state import read_mirror_states

    states = read_mirror_states(session.metastore, tables, percentiles=False)
    documents: list[dict[str, Any]] = [
        {
            "table": state.table,
            "mirrored_version": state.mirrored_version,
            "commits": followed.commits[state.table],
            "checkpoints": followed.checkpoints[state.table],
            "failed": state.state not in ("OK", "PAUSED", "RELEASED") or bool(state.last_error),
            "state": state.state,
            "reason": state.reason,
            "last_error": state.last_error,
        }
        for state in states
    ]
    columns = ("table", "mirrored_version", "commits", "checkpoints", "state", "last_error")
    empty = "no table is registered yet"
    answer = {"tables": documents, **choice.as_dict()}
    session.output.rows(answer, "tables", columns, title="mirrored", empty=empty)
    failed = any(document["failed"] for document in documents)
    return ExitCode.REFUSED if failed and not was_following else ExitCode.CLEAN
