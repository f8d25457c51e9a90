"""`report`: every registered table verified, as a page for people, a document for scripts."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mirror_assets.cli.conformance import (
    READERS_HELP,
    VerifyProfile,
    read_by,
    reader_names,
    verified_table,
)
from mirror_assets.cli.exits import ExitCode, exit_code_of
from mirror_assets.cli.files import require_folder, write_bytes
from mirror_assets.cli.session import Session
from mirror_assets.errors import MirrorAssetsError

if TYPE_CHECKING:
    from mirror_assets.conformance.overview import Standing
    from mirror_assets.metastore.log_reader import TableRecord
    from mirror_assets.metastore.mirror_state import MirrorState

_PAGE: Final = Path("mirror-report.html")
_COLUMNS: Final = (
    *("table", "state", "head_version", "mirrored_version", "checkpoint_version"),
    *("lag_versions", "errors", "warnings", "problem"),
)


def report(
    session: Session,
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", dir_okay=False, help="Where the page goes.")
    ] = _PAGE,
    readers: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help=READERS_HELP),
    ] = None,
) -> ExitCode:
    """Verify every table and write one HTML page about all of them."""
    from mirror_assets.conformance.overview import overview_page, totals
    from mirror_assets.metastore.mirror_state import read_mirror_states
    from mirror_assets.settings import redact

    asked = reader_names(readers)
    require_folder(out)
    states = {state.table: state for state in read_mirror_states(session.metastore)}
    standings = [
        _standing(session, table, states[table.name], asked)
        for table in session.reader.tables()
        if table.name in states
    ]
    made_at = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    page = overview_page(standings, metastore=redact(session.metastore.url), made_at=made_at)
    write_bytes(out, page.encode("utf-8", "backslashreplace"))
    document = {
        "out": str(out),
        "made_at": made_at,
        "totals": totals(standings),
        "tables": [_document(standing) for standing in standings],
    }
    empty = "no table is registered yet: `mirror-assets create` or `mirror-assets import`"
    session.output.rows(document, "tables", _COLUMNS, title=f"report in {out}", empty=empty)
    return max(map(_code, standings), default=ExitCode.CLEAN)


def _standing(
    session: Session, table: TableRecord, mirror: MirrorState, readers: list[str]
) -> Standing:
    """One table; that its log cannot be read is told, and does not keep others from the page."""
    from mirror_assets.conformance.overview import Standing

    found, error = None, None
    try:
        found = verified_table(session, table.name, VerifyProfile.STRICT)
        if readers:
            found = read_by(session, found, readers)
    except MirrorAssetsError as exc:
        error = exc
    return Standing(
        mirror=mirror,
        location=table.location,
        num_files=table.num_files,
        size_bytes=table.size_bytes,
        report=found if error is None else None,
        error=error,
    )


def _code(standing: Standing) -> ExitCode:
    if standing.error is not None:
        return exit_code_of(standing.error)
    return ExitCode.CLEAN if standing.is_well else ExitCode.REFUSED


def _document(standing: Standing) -> dict[str, Any]:
    from mirror_assets.settings import redact

    mirror, counts, error = standing.mirror, standing.counts, standing.error
    verified = {} if standing.report is None else standing.report.as_dict()
    return {
        "table": mirror.table,
        "location": standing.location,
        "state": mirror.state,
        "reason": mirror.reason,
        "head_version": mirror.head_version,
        "mirrored_version": mirror.mirrored_version,
        "checkpoint_version": mirror.checkpoint_version,
        "lag_versions": mirror.lag_versions,
        "lag_seconds": mirror.lag_ms / 1000,
        "num_files": standing.num_files,
        "size_bytes": standing.size_bytes,
        "errors": counts["error"],
        "warnings": counts["warning"],
        "problem": None if error is None else redact(f"{error.code}: {error.message}"),
        "findings": verified.get("findings", []),
        "checked": verified.get("checked"),
        "readers": verified.get("readers", []),
    }
