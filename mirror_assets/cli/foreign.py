"""`fence`, `release`, `adopt` and `fork`: living with writers that know nothing of SQL."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer

from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.session import Session

#: how long a change of the fence is tried to be put into the log at once
_PUBLISH_S: Final = 2.0
#: how long a release waits for what fails, or is in the hands of another mirror
_PATIENCE_S: Final = 15.0
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The table.")]


def fence(session: Session, *, name: _Name) -> ExitCode:
    """Keep foreign writers out by a table feature that only we know; readers go on."""
    return _set_fence(session, name, fenced=True)


def unfence(session: Session, *, name: _Name) -> ExitCode:
    """Take the fence down: whoever knows the table's other features may write again."""
    return _set_fence(session, name, fenced=False)


def release(session: Session, *, name: _Name) -> ExitCode:
    """Publish everything, take no more commits, and leave the log to file-based writers."""
    from mirror_assets.mirror.release import release as release_table

    released = release_table(
        session.mirror, name, engine_info=session.settings.engine_info, patience_s=_PATIENCE_S
    )
    session.output.record(asdict(released), f"released {name}")
    return ExitCode.CLEAN


def adopt(
    session: Session,
    *,
    name: _Name,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; else only the plan.")] = False,
) -> ExitCode:
    """Take over what a table's log has beyond SQL, or take a released table back."""
    from mirror_assets.metastore.mirror_state import read_mirror_states
    from mirror_assets.mirror.adopt import adopt as adopt_log

    store = session.mirror.open_store(session.reader.table(name).location)
    done = adopt_log(session.metastore, store, name, apply=apply)
    (state,) = read_mirror_states(session.metastore, [name], percentiles=False)
    document = {
        "table": name,
        "state": state.state,
        "applied": apply,
        "head_version": done.head_version,
        "version": done.version,
        "commits": [asdict(commit) for commit in done.commits],
        "findings": [finding.as_dict() for finding in done.findings],
    }
    session.output.findings(list(done.findings))
    verb = "adopted" if apply else "would be adopted"
    session.output.record(document, f"{verb}: {len(done.commits)} versions of {name}")
    if not apply and (done.commits or done.is_taken_back):
        session.output.note("--apply does it")
    return ExitCode.CLEAN


def fork(
    session: Session,
    *,
    name: _Name,
    to: Annotated[str, typer.Option("--to", metavar="URI", help="A place without a log.")],
    apply: Annotated[bool, typer.Option("--apply", help="Do it; else only the plan.")] = False,
) -> ExitCode:
    """Let SQL's history of a table go on at another place, to which its data was copied."""
    from mirror_assets.cli.locations import require_location
    from mirror_assets.metastore.mirror_state import read_mirror_states
    from mirror_assets.mirror.fork import fork as fork_table
    from mirror_assets.mirror.fork import plan_fork
    from mirror_assets.storage.data_files import open_data_files

    session.reader.table(name)
    place = require_location(to, session.settings)
    store = session.mirror.open_store(place.uri)
    data = open_data_files(place, session.settings.store_options())
    work = fork_table if apply else plan_fork
    plan = work(session.metastore, name, store, data)
    (state,) = read_mirror_states(session.metastore, [name], percentiles=False)
    document = {
        "table": name,
        "state": state.state,
        "applied": apply,
        "head_version": plan.head_version,
        "left": plan.left,
        "location": plan.location,
        "files": plan.files,
        "size_bytes": plan.size_bytes,
        "num_missing": plan.num_missing,
        "missing": list(plan.missing),
        "commits": plan.rebuilt.commits if plan.rebuilt else None,
        "checkpoints": list(plan.rebuilt.checkpoints) if plan.rebuilt else None,
    }
    verb = "goes on" if apply else "would go on"
    session.output.record(document, f"{name} {verb} at {plan.location}")
    if not apply:
        todo = "--apply does it" if not plan.num_missing else "first copy the missing data files"
        session.output.note(todo)
    return ExitCode.REFUSED if plan.num_missing else ExitCode.CLEAN


def _set_fence(session: Session, name: str, *, fenced: bool) -> ExitCode:
    from mirror_assets.cli.documents import wire_document
    from mirror_assets.cli.mirror import publish_soon
    from mirror_assets.metastore.fencing import set_fence

    done = set_fence(session.reader, session.writer, name, fenced=fenced)
    document = {
        "table": name,
        "state": "FENCED" if fenced else "UNFENCED",
        "version": done.version,
        "visible": publish_soon(session, [name], _PUBLISH_S),
        "protocol": wire_document(done.protocol),
    }
    session.output.record(document, f"{name} is {'fenced' if fenced else 'not fenced'}")
    if done.version is None:
        session.output.note("it was so before; nothing was committed")
    return ExitCode.CLEAN
