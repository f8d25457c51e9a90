"""`import`: an existing Delta table becomes one of ours."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.output import errors_console
from mirror_assets.cli.session import Session
from mirror_assets.delta.actions import INT64_MAX
from mirror_assets.errors import MirrorAssetsError

if TYPE_CHECKING:
    from mirror_assets.metastore.import_run import ImportProgress
    from mirror_assets.metastore.importer import ImportReport


class History(StrEnum):
    """How much of the past comes along."""

    FULL = "full"
    CHECKPOINT = "checkpoint"


_Location = Annotated[str, typer.Argument(metavar="LOCATION", help="The table's root.")]
_UpToVersion = Annotated[
    int | None,
    typer.Option(min=0, max=INT64_MAX, metavar="N", help="Only the log up to this version."),
]
_MirrorTo = Annotated[
    str | None,
    typer.Option(metavar="URI", help="Publish the log here; the data files stay where they are."),
]


def import_(
    session: Session,
    *,
    location: _Location,
    name: Annotated[str, typer.Option(metavar="NAME", help="As in schema.table.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look, and write nothing.")] = False,
    up_to_version: _UpToVersion = None,
    history: Annotated[
        History, typer.Option(help="All commits, or those since the newest checkpoint.")
    ] = History.FULL,
    mirror_to: _MirrorTo = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="A fenced log, whose own metastore is gone.")
    ] = False,
) -> ExitCode:
    """Take an existing Delta table over, with its history and without losing a byte."""
    from mirror_assets.cli.locations import refuse_foreign_log, require_location
    from mirror_assets.metastore.importer import import_table
    from mirror_assets.storage.stores import open_store

    settings, metastore = session.settings, session.metastore
    try:
        place = require_location(location, settings)
        target = None if mirror_to is None else require_location(mirror_to, settings)
        if target is not None:
            refuse_foreign_log(target, settings, "choose a place without a table")
        with _progress_bar() as progress:
            report = import_table(
                metastore,
                open_store(place, settings.store_options(), allowed_roots=()).source,
                name,
                dry_run=dry_run,
                up_to_version=up_to_version,
                history=history.value,
                mirror_to=target,
                take_over=take_over,
                progress=progress,
            )
    except MirrorAssetsError as exc:
        raise exc.at(table=name) from exc.__cause__
    _answer(session, report)
    return ExitCode.CLEAN


def _answer(session: Session, report: ImportReport) -> None:
    findings = report.findings
    document = {**asdict(report), "findings": [finding.as_dict() for finding in findings]}
    document["dry_run"] = document.pop("is_dry_run")
    verb = "can be imported" if report.is_dry_run else "imported"
    session.output.findings(findings)
    session.output.record(document, f"{report.table} {verb}")


@contextmanager
def _progress_bar() -> Iterator[Callable[[ImportProgress], None]]:
    """A bar on stderr while it is a terminal."""
    console = errors_console()
    bar = Progress(
        TextColumn("{task.fields[phase]}"),
        BarColumn(),
        TextColumn("version {task.fields[version]} of {task.fields[head]}"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    task = bar.add_task("import", total=None, phase="list", version="?", head="?")

    def show(progress: ImportProgress) -> None:
        bar.update(
            task,
            total=progress.total_bytes,
            completed=progress.bytes,
            phase=progress.phase,
            version=progress.version,
            head=progress.head_version,
        )

    with bar:
        yield show
