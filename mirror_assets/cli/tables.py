"""`create`, `tables` and `drop`: registered tables."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from mirror_assets.cli.exits import ExitCode, UsageError
from mirror_assets.cli.files import read_bytes
from mirror_assets.cli.session import Session
from mirror_assets.errors import (
    MalformedActionError,
    MirrorAssetsError,
)

#: how long version 0 is tried to be put into the log at once
_PUBLISH_S: Final = 2.0


def create(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As in schema.table.")],
    location: Annotated[str, typer.Option(metavar="URI", help="The table's root.")],
    schema: Annotated[Path, typer.Option(metavar="FILE", help="A Delta schemaString in JSON.")],
    partition_by: Annotated[
        str, typer.Option(metavar="C,D", help="Partition columns, in order.")
    ] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="K=V", help="A table property; repeatable."),
    ] = None,
) -> ExitCode:
    """Register a new table and commit its version 0."""
    from mirror_assets.cli.locations import refuse_foreign_log, require_location
    from mirror_assets.cli.mirror import publish_soon
    from mirror_assets.metastore.registry import create_table, refuse_taken, require_name

    settings, metastore = session.settings, session.metastore
    try:
        require_name(name)
        place = require_location(location, settings)
        with metastore.read() as connection:
            refuse_taken(connection, name, place)
        way_out = f"take it over: `mirror-assets import {place} --name NAME`"
        refuse_foreign_log(place, settings, way_out)
        committed = create_table(
            metastore,
            name,
            place.uri,
            _read_schema(schema),
            partition_columns=[c.strip() for c in partition_by.split(",") if c.strip()],
            configuration=_pairs(properties or []),
            engine_info=settings.engine_info,
        )
    except MirrorAssetsError as exc:
        raise exc.at(table=name) from exc.__cause__
    document = {
        "table": name,
        "version": committed.version,
        "visible": publish_soon(session, [name], _PUBLISH_S),
        "location": place.uri,
        "commit_id": committed.commit_id,
        "timestamp_ms": committed.timestamp_ms,
        "findings": [finding.as_dict() for finding in committed.findings],
    }
    session.output.record(document, f"created {name}")
    return ExitCode.CLEAN


def tables(session: Session) -> ExitCode:
    """List the registered tables: location, protocol, head, mirror state."""
    from mirror_assets.cli.documents import table_document
    from mirror_assets.metastore.log_reader import protocol_at

    records = session.reader.tables()
    with session.metastore.read() as connection:
        documents = [
            table_document(
                record,
                None
                if record.head_version < record.floor_version
                else protocol_at(connection, record, record.head_version),
            )
            for record in records
        ]
    session.output.rows(
        {"tables": documents},
        "tables",
        ("table", "location", "state", "head_version", "mirrored_version", "num_files"),
        title="tables",
        empty="no table is registered yet: `mirror-assets create` or `mirror-assets import`",
    )
    return ExitCode.CLEAN


def drop(
    session: Session,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table to forget.")],
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only tell.")] = False,
) -> ExitCode:
    """Forget a table: its rows in SQL go, its log and its data files stay."""
    from mirror_assets.metastore.dropping import drop_table

    table = drop_table(session.metastore, name) if apply else session.reader.table(name)
    document = {
        "table": name,
        "state": "DROPPED" if apply else table.state,
        "applied": apply,
        "location": table.location,
        "versions": table.head_version + 1 - table.first_version,
        "unmirrored_versions": table.head_version - table.mirrored_version,
    }
    session.output.record(document, f"{name} is forgotten" if apply else f"would forget {name}")
    if not apply:
        lost = document["unmirrored_versions"]
        session.output.note(f"{lost} versions are only in SQL and would be lost; --apply does it")
    return ExitCode.CLEAN


def _read_schema(path: Path) -> str:
    try:
        return read_bytes(path).decode().strip()
    except UnicodeDecodeError as exc:
        message = f"the schema in {path} is not UTF-8: {exc}"
        raise MalformedActionError(message, rule="DL-SCH-01") from exc


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            message = f"the property {text!r} is not KEY=VALUE"
            raise UsageError(message, remedy="as in --property delta.appendOnly=true")
        if key in pairs:
            raise UsageError(f"the property {key!r} is given twice", remedy="give it once")
        pairs[key] = value
    return pairs
