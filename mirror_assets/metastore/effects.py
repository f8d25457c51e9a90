"""What a commit does to older rows: which files it retires, which tombstones it supersedes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

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
    adds: Sequence[AddFile] = kinds.get(AddFile, ())
    removes: Sequence[RemoveFile] = kinds.get(RemoveFile, ())
    effects = Effects(head.num_files + len(adds), head.size_bytes + sum(add.size for add in adds))
    if not adds and not removes:
        return effects
    live, standing = _met(statements, connection, head, actions, glance)
    if live or standing or removes:
        _meet(effects, head, (live, standing), adds, removes)
    return effects


def _met(
    statements: Statements,
    connection: Connection,
    head: TableRecord,
    actions: Sequence[Action],
    glance: Glance | None,
) -> tuple[Sequence[OpenRow], Sequence[OpenRow]]:
    """The live files and the tombstones of the paths; nobody looks where there are none."""
    live, standing = (None, None) if glance is None else (glance.live, glance.standing)
    wanted: dict[str, Any] = {}
    if (live is None and head.num_files) or (standing is None and head.num_removes):
        texts = statements.dialect.texts(touched_paths(actions))
        wanted = {"table_id": head.table_id, "texts": texts}
    if live is None and head.num_files:
        live = statements.open_rows(dl_add_files.c.removed_version).run(connection, wanted)
    if standing is None and head.num_removes:
        end = dl_remove_files.c.superseded_version
        standing = statements.open_rows(end).run(connection, wanted)
    return live or (), standing or ()


def _meet(
    effects: Effects,
    head: TableRecord,
    met: tuple[Sequence[OpenRow], Sequence[OpenRow]],
    adds: Sequence[AddFile],
    removes: Sequence[RemoveFile],
) -> None:
    """Add to the effects what the commit does to the files that it met."""
    live, standing = met
    added = {(add.path, add.dv_id) for add in adds}
    removed = {(remove.path, remove.dv_id) for remove in removes}
    ended = added | removed
    _refuse_second_vector(head, live, ended, added)
    gone = [row for row in live if (row[2], row[3]) in ended]
    effects.retired = [(version, ordinal) for version, ordinal, *_ in gone]
    effects.num_files -= len(gone)
    effects.size_bytes -= sum(size for *_, size in gone)
    effects.superseded = [(v, o) for v, o, path, dv_id, _ in standing if (path, dv_id) in ended]
    unknown = removed - {(path, dv_id) for _, _, path, dv_id, _ in gone}
    effects.findings = _not_in_table(head, unknown)


def _refuse_second_vector(
    head: TableRecord, live: Sequence[OpenRow], ended: AbstractSet[Key], adds: Iterable[Key]
) -> None:
    paths = {path for path, _ in adds} if live else ()
    for _, _, path, dv_id, _ in live:
        if path in paths and (path, dv_id) not in ended:
            message = f"{path!r} is live with another deletion vector, which is not removed"
            remedy = "remove the file with its present deletion vector in the same commit"
            raise RuleViolationError(message, table=head.name, rule="DL-ADD-06", remedy=remedy)


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
