"""`commit`: actions from a file become the next version, of one table or of several at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from mirror_assets.cli.documents import Document, commit_document
from mirror_assets.cli.exits import ExitCode, UsageError
from mirror_assets.cli.files import read_bytes
from mirror_assets.cli.session import Session
from mirror_assets.delta.actions import Action, Txn
from mirror_assets.delta.commit_file import decode
from mirror_assets.errors import MalformedActionError
from mirror_assets.metastore.outcomes import CommitRequest, Conflict, Outcome

_Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="The table.")]
_Actions = Annotated[
    Path | None,
    typer.Option(metavar="FILE|-", help="Newline-delimited Delta actions; - is stdin."),
]
_Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="NAME=FILE",
        help="In place of NAME and --actions: commit to several tables atomically; repeatable.",
    ),
]
_ReadVersions = Annotated[
    list[str] | None,
    typer.Option(
        "--read-version",
        metavar="N",
        help="The version the actions were made from; with --table: NAME=N, repeatable.",
    ),
]
_AppId = Annotated[
    str | None, typer.Option(help="With --app-version: commit once per application version.")
]
_CommitId = Annotated[
    UUID | None, typer.Option(help="Your own id of this commit: the same id commits once.")
]
_Wait = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="Try so long to have it in the log."),
]


def commit(
    session: Session,
    *,
    name: _Name = None,
    actions: _Actions = None,
    tables: _Tables = None,
    read_versions: _ReadVersions = None,
    app_id: _AppId = None,
    app_version: Annotated[int | None, typer.Option(help="See --app-id.")] = None,
    commit_id: _CommitId = None,
    wait: _Wait = None,
) -> ExitCode:
    """Commit Delta actions as the next version of a table, or of several tables at once."""
    files = _files(name, actions, tables or [])
    txn = _txn(app_id, app_version)
    read = _read_versions(read_versions or [], list(files))
    requests = [
        CommitRequest(
            table=table,
            actions=_with_txn(_decode(session, table, read_bytes(path)), txn),
            read_version=read.get(table),
            isolation=session.settings.isolation,
        )
        for table, path in files.items()
    ]
    outcomes = session.writer.commit_all(
        requests, commit_id=None if commit_id is None else str(commit_id)
    )
    document = commit_document(outcomes, several=bool(tables))
    if wait is not None:
        document["visible"] = _publish(session, outcomes, wait)
    _warn(session, document)
    session.output.record(document, str(document["outcome"]).replace("_", " "))
    return ExitCode.REFUSED if document["outcome"] == "conflict" else ExitCode.CLEAN


def _publish(session: Session, outcomes: Sequence[Outcome], seconds: float) -> bool:
    """Whether what was committed is in the log, after one attempt to put it there."""
    from mirror_assets.cli.mirror import publish_soon  # noqa: PLC0415 - for the start-up time

    versions = {o.table: o.version for o in outcomes if not isinstance(o, Conflict)}
    return bool(versions) and publish_soon(session, list(versions), seconds, versions)


def _files(name: str | None, actions: Path | None, tables: list[str]) -> dict[str, Path]:
    """Which file goes to which table."""
    if not tables:
        if name is None or actions is None:
            raise UsageError("give NAME and --actions FILE, or --table NAME=FILE for each table")
        return {name: actions}
    if name is not None or actions is not None:
        raise UsageError("--table takes the place of NAME and --actions: give one or the other")
    files: dict[str, Path] = {}
    for text in tables:
        table, equals, path = text.partition("=")
        if not table or not equals or not path:
            raise UsageError(f"--table {text!r} is not NAME=FILE")
        if table in files:
            remedy = "put all its actions into one file"
            raise UsageError(f"the table {table!r} is given twice", remedy=remedy)
        files[table] = Path(path)
    if list(map(str, files.values())).count("-") > 1:
        raise UsageError("stdin holds the actions of one table only")
    return files


def _read_versions(texts: list[str], tables: list[str]) -> dict[str, int]:
    read: dict[str, int] = {}
    for text in texts:
        table, equals, number = text.rpartition("=")
        if not equals and len(tables) == 1:
            table = tables[0]
        if table not in tables:
            raise UsageError(f"--read-version {text!r}: with several tables it is NAME=N")
        if not (number.isascii() and number.isdigit()):
            raise UsageError(f"--read-version {text!r}: not a version")
        read[table] = int(number)
    return read


def _txn(app_id: str | None, app_version: int | None) -> Txn | None:
    if app_id is None and app_version is None:
        return None
    if app_id is None or app_version is None:
        raise UsageError("--app-id and --app-version belong together")
    return Txn(app_id=app_id, version=app_version)


def _with_txn(actions: list[Action], txn: Txn | None) -> Sequence[Action]:
    """The actions with the txn, unless the file has it; two different ones are the writer's."""
    if txn is None:
        return actions
    said = {(a.app_id, a.version) for a in actions if isinstance(a, Txn)}
    return actions if (txn.app_id, txn.version) in said else [*actions, txn]


def _decode(session: Session, table: str, data: bytes) -> list[Action]:
    try:
        return decode(data, strict=True).actions
    except MalformedActionError as exc:
        version = session.reader.table(table).head_version + 1
        raise exc.at(table=table, version=version) from exc.__cause__


def _warn(session: Session, document: Document) -> None:
    for part in document.get("tables", [document]):
        for finding in part.get("findings", []):
            if finding["severity"] != "info":
                session.output.note(
                    f"{finding['severity']} {finding['rule']} table {part['table']} "
                    f"version {part['version']}: {finding['message']}"
                )
