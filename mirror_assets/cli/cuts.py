"""`cut`: the versions of several tables that can be read together."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.session import Session


def cut(
    session: Session,
    *,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="The tables; all by default.")
    ] = None,
) -> ExitCode:
    """Show the newest published versions in which no commit to several tables is torn."""
    from mirror_assets.metastore.cuts import read_cut

    found = read_cut(session.metastore, names or None)
    incomplete = [
        {"group": g.group_id, "published": dict(g.published), "missing": dict(g.missing)}
        for g in found.incomplete
    ]
    document = {"tables": [asdict(table) for table in found.tables], "incomplete": incomplete}
    columns = ("table", "version", "mirrored_version", "head_version", "location")
    empty = "no table is registered yet"
    session.output.rows(document, "tables", columns, title="consistent cut", empty=empty)
    for group in found.incomplete:
        missing = ", ".join(f"{table} version {number}" for table, number in group.missing.items())
        session.output.note(f"commit {group.group_id} is published in part: {missing} is missing")
    return ExitCode.CLEAN
