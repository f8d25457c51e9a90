"""What a commit does to older rows: which files it retires, which tombstones it supersedes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, Connection

from mirror_assets.delta.actions import Action, AddFile, RemoveFile, by_kind
from mirror_assets.delta.path_rules import check_stays_inside
from mirror_assets.errors import RuleViolationError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.log_reader import TableRecord
from mirror_assets.metastore.statements import Statements
from mirror_assets.metastore.tables import dl_add_files, dl_remove_files

Key = tuple[str, str]
#: version, ordinal, path, deletion vector, size
OpenRow = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """Files of the paths that a commit names, as they stand under the lock of the head."""

    live: Sequence[OpenRow]
    #: tombstones; None if nobody looked
    standing: Sequence[OpenRow] | None


@dataclass(slots=True)
class Effects:
    """Older rows by (version, ordinal), and the totals after the commit."""

    num_files: int
    size_bytes: int
    retired: list[tuple[int, int]] = field(default_factory=list)
    superseded: list[tuple[int, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def write(
        self, statements: Statements, connection: Connection, head: TableRecord, version: int
    ) -> None:
        """Mark the older rows with the version that ended them."""
        for column, keys in (
            (dl_add_files.c.removed_version, self.retired),
            (dl_remove_files.c.superseded_version, self.superseded),
        ):
            if keys:
                statements.dialect.update_rows(
                    connection,
                    column.table,
                    keys=("table_id", "version", "ordinal"),
                    columns=(column.name,),
                    rows=[(head.table_id, *key, version) for key in keys],
                )


def touched_paths(actions: Sequence[Action]) -> list[str]:
    """The paths that a commit names as added or removed, each once."""
    return list(dict.fromkeys(a.path for a in actions if isinstance(a, AddFile | RemoveFile)))


def find_effects(
    statements: Statements,
    connection: Connection,
    head: TableRecord,
    actions: Sequence[Action],
    glance: Glance | None = None,
) -> Effects:
    """Compare the commit's files with what stands in the table.

    `glance` has what was found of these paths already. Raises RuleViolationError where an add
    meets its path live under another deletion vector that the commit does not remove (DL-ADD-06).
    """
    kinds = by_kind(actions)
    adds: dict[Key, int] = {(a.path, a.dv_id): a.size for a in kinds.get(AddFile, ())}
    removes: set[Key] = {(a.path, a.dv_id) for a in kinds.get(RemoveFile, ())}
    effects = Effects(head.num_files + len(adds), head.size_bytes + sum(adds.values()))
    ended = adds.keys() | removes if removes else adds.keys()
    if not ended:
        return effects
    live = glance.live if glance is not None else None
    if live is None:
        live = _open_rows(statements, connection, head, dl_add_files.c.removed_version, ended)
    _refuse_second_vector(head, live, ended, adds)
    gone = [row for row in live if (row[2], row[3]) in ended]
    effects.retired = [(version, ordinal) for version, ordinal, *_ in gone]
    effects.num_files -= len(gone)
    effects.size_bytes -= sum(size for *_, size in gone)
    if head.num_removes:
        standing = glance.standing if glance is not None else None
        if standing is None:
            end = dl_remove_files.c.superseded_version
            standing = _open_rows(statements, connection, head, end, ended)
        effects.superseded = [(v, o) for v, o, path, dv_id, _ in standing if (path, dv_id) in ended]
    unknown = removes - {(path, dv_id) for _, _, path, dv_id, _ in gone}
    effects.findings = _not_in_table(head, unknown)
    return effects


def _refuse_second_vector(
    head: TableRecord, live: Sequence[OpenRow], ended: AbstractSet[Key], adds: Iterable[Key]
) -> None:
    paths = {path for path, _ in adds} if live else ()
    for _, _, path, dv_id, _ in live:
        if path in paths and (path, dv_id) not in ended:
            message = f"{path!r} is live with another deletion vector, which is not removed"
            remedy = "remove the file with its present deletion vector in the same commit"
            raise RuleViolationError(message, table=head.name, rule="DL-ADD-06", remedy=remedy)


def _open_rows(
    statements: Statements,
    connection: Connection,
    head: TableRecord,
    end: Column[int],
    keys: Iterable[Key],
) -> Sequence[OpenRow]:
    paths = list({path for path, _ in keys})
    parameters = {"table_id": head.table_id, "texts": statements.dialect.texts(paths)}
    return statements.open_rows(end).run(connection, parameters)


def _not_in_table(head: TableRecord, keys: set[Key]) -> list[Finding]:
    for path, _ in keys:
        check_stays_inside(path, "remove", "DL-REM-01")
    return [
        Finding(
            rule="DL-REM-06",
            severity=Severity.WARNING,
            table=head.name,
            version=head.head_version + 1,
            message=f"the removed file {path!r} is not in the table",
            remedy="legal as a tombstone; check that the path is spelled as it was added",
        )
        for path, _ in sorted(keys)
    ]
