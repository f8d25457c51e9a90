"""`state` and `history`: a table at any version, from SQL alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from mirror_assets.cli.documents import state_document, version_document, wire_object
from mirror_assets.cli.exits import ExitCode, UsageError
from mirror_assets.cli.session import Session
from mirror_assets.delta.actions import INT64_MAX

_MILLISECOND: Final = timedelta(milliseconds=1)
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The table.")]


def state(
    session: Session,
    *,
    name: _Name,
    version: Annotated[
        int | None, typer.Option(min=0, help="At this version; the head by default.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="As of this time: ISO 8601 (UTC unless it says otherwise) or epoch milliseconds.",
        ),
    ] = None,
    files: Annotated[bool, typer.Option("--files", help="List the live files, too.")] = False,
) -> ExitCode:
    """Show protocol, metadata and live files of a table, now or at any version."""
    if version is not None and timestamp is not None:
        raise UsageError("--version and --timestamp: give one or the other")
    if timestamp is not None:
        version = session.reader.version_at(name, _epoch_ms(timestamp))
    summary = session.reader.summary(name, version)
    document = state_document(summary)
    title = f"{name} at version {summary.version}"
    if not files:
        session.output.record({**document, "files": None}, title)
        return ExitCode.CLEAN
    adds = session.reader.live_files(name, summary.version)
    session.output.stream(document, "files", map(wire_object, adds), title)
    return ExitCode.CLEAN


def history(
    session: Session,
    *,
    name: _Name,
    limit: Annotated[
        int | None,
        typer.Option(min=1, max=INT64_MAX, metavar="N", help="Only the newest N commits."),
    ] = None,
) -> ExitCode:
    """List the commits of a table, the newest first."""
    rows = session.reader.history(name, limit)
    session.output.rows(
        {"table": name, "commits": [version_document(row) for row in rows]},
        "commits",
        (
            *("version", "timestamp", "operation", "num_adds", "num_removes"),
            *("num_files", "size_bytes", "mirror_state", "lag_seconds"),
        ),
        title=f"history of {name}",
        empty=f"{name} has no commit",
    )
    return ExitCode.CLEAN


def _epoch_ms(text: str) -> int:
    if text.removeprefix("-").isdecimal() and text.isascii():
        return max(-INT64_MAX, min(int(text), INT64_MAX))
    try:
        at = datetime.fromisoformat(text)
    except ValueError as exc:
        message = f"--timestamp {text!r} is neither ISO 8601 nor epoch milliseconds"
        remedy = "as in 2026-01-31T12:00:00Z or 1769860800000"
        raise UsageError(message, remedy=remedy) from exc
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - datetime.fromtimestamp(0, UTC)) // _MILLISECOND
