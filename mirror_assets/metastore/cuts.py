"""Versions of several tables that belong together: what is owed, and the newest that is whole.

A commit to several tables gives all of them one group. Its cut is complete when the versions of
all participants are published; the mirror then names them in a file beside each commit file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, exists, select

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.heads import PUBLISHED_STATES
from mirror_assets.metastore.log_reader import find_table
from mirror_assets.metastore.tables import (
    dl_mirror_status,
    dl_mirror_tables,
    dl_table_versions,
    dl_tables,
)

_ARTIFACT: Final = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One table's part in a commit to several."""

    table_id: int
    table: str
    location: str
    version: int
    sha256: str
    committed_at_ms: int
    mirrored_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedCut:
    """A complete group, and the participants whose logs do not name it yet."""

    group_id: str
    members: tuple[Member, ...]
    owing: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTable:
    """A table's place in a consistent cut; version -1: before its first commit."""

    table: str
    location: str
    version: int
    mirrored_version: int
    head_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteGroup:
    """A commit to several tables of which some are published and others are not."""

    group_id: str
    published: Mapping[str, int]
    missing: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentCut:
    """The newest published versions in which every commit to several tables is whole or absent."""

    tables: tuple[CutTable, ...]
    incomplete: tuple[IncompleteGroup, ...]


def owe_cut(connection: Connection, table_id: int, version: int) -> None:
    """Order the cut of a version that was committed with others."""
    row = {"table_id": table_id, "version": version, "artifact": _ARTIFACT}
    connection.execute(dl_mirror_status.insert(), {**row, "status": "PENDING", "attempts": 0})


def read_owed_cuts(
    metastore: Metastore, tables: Sequence[str] | None, *, limit: int
) -> list[OwedCut]:
    """Groups of which all versions are published, and that some participant does not name."""
    with metastore.read() as connection:
        owing: defaultdict[str, set[int]] = defaultdict(set)
        for row in connection.execute(_complete(tables).limit(limit)):
            owing[row.group_id].add(row.table_id)
        groups = _members(connection, owing)
    return [
        OwedCut(
            group_id=group_id,
            members=members,
            owing=tuple(m for m in members if m.table_id in owing[group_id]),
        )
        for group_id, members in groups.items()
    ]


def record_cut(metastore: Metastore, member: Member, sha256: str, resolved_by: str) -> None:
    """The participant's log names the cut."""
    with metastore.write() as connection:
        now_ms = int(connection.execute(select(metastore.dialect.now_ms())).scalar_one())
        update = dl_mirror_status.update().where(_is_of(member))
        update = update.values(status="SUCCESS", reason_code=None, sha256=sha256)
        update = update.values(resolved_by=resolved_by, published_at_ms=now_ms)
        lag_ms = max(0, now_ms - member.committed_at_ms)
        connection.execute(update.values(lag_ms=lag_ms))


def record_cut_failed(
    metastore: Metastore, member: Member, *, reason_code: str, message: str, is_final: bool
) -> None:
    """The cut could not be written; a final failure is not tried again."""
    status = dl_mirror_status
    values: dict[str, Any] = {"reason_code": reason_code, "last_error": message}
    values["status"] = "FAILED" if is_final else "PENDING"
    values["attempts"] = status.c.attempts + 1
    with metastore.write() as connection:
        connection.execute(status.update().where(_is_of(member)).values(values))


def read_cut(metastore: Metastore, names: Sequence[str] | None = None) -> ConsistentCut:
    """The newest consistent cut of the tables that the log can show now; all by default.

    Going back from what is published: a group of which a version is beyond the cut takes its
    other versions out of it, and these again those of later groups. Raises TableNotFoundError.
    """
    with metastore.read() as connection:
        for name in names or ():
            find_table(connection, name)
        query = select(dl_tables).where(dl_tables.c.state.in_(PUBLISHED_STATES))
        if names is not None:
            query = query.where(dl_tables.c.name.in_(names))
        rows = connection.execute(query.order_by(dl_tables.c.name)).mappings().all()
        mirrored: dict[int, int] = {row["table_id"]: row["mirrored_version"] for row in rows}
        cut, torn = _newest(connection, mirrored)
        groups = _members(connection, torn)
    return ConsistentCut(
        tables=tuple(
            CutTable(
                table=row["name"],
                location=row["location"],
                version=cut[row["table_id"]],
                mirrored_version=row["mirrored_version"],
                head_version=row["head_version"],
            )
            for row in rows
        ),
        incomplete=tuple(
            _incomplete(group, mirrored, members) for group, members in groups.items()
        ),
    )


def _newest(connection: Connection, mirrored: Mapping[int, int]) -> tuple[dict[int, int], set[str]]:
    """The versions of the cut, and the groups that are published in part."""
    cut, torn = dict(mirrored), set[str]()
    beyond = _unpublished_groups(connection, list(mirrored))
    while beyond:
        before = dict(cut)
        for group_id, members in _members(connection, beyond).items():
            if any(m.version > mirrored.get(m.table_id, m.version) for m in members) and any(
                m.version <= mirrored.get(m.table_id, -1) for m in members
            ):
                torn.add(group_id)
            for member in members:
                if member.version <= cut.get(member.table_id, -1):
                    cut[member.table_id] = member.version - 1
        beyond = set[str]()
        for table_id, version in cut.items():
            if version < before[table_id]:
                beyond |= _groups_between(connection, table_id, version, before[table_id])
    return cut, torn


def _unpublished_groups(connection: Connection, ids: Sequence[int]) -> set[str]:
    table, version = dl_tables, dl_table_versions
    query = (
        select(version.c.group_id)
        .join(table, table.c.table_id == version.c.table_id)
        .where(
            table.c.table_id.in_(ids),
            version.c.version > table.c.mirrored_version,
            version.c.group_id.is_not(None),
        )
    )
    return set(connection.execute(query).scalars())


def _groups_between(connection: Connection, table_id: int, after: int, until: int) -> set[str]:
    version = dl_table_versions
    query = select(version.c.group_id).where(
        version.c.table_id == table_id,
        version.c.version.between(after + 1, until),
        version.c.group_id.is_not(None),
    )
    return set(connection.execute(query).scalars())


def _incomplete(
    group_id: str, mirrored: Mapping[int, int], members: Sequence[Member]
) -> IncompleteGroup:
    """By what was mirrored when the cut was begun: it may have moved since."""
    is_published = {m: m.version <= mirrored.get(m.table_id, m.mirrored_version) for m in members}
    return IncompleteGroup(
        group_id=group_id,
        published={m.table: m.version for m in members if is_published[m]},
        missing={m.table: m.version for m in members if not is_published[m]},
    )


def _members(connection: Connection, groups: Iterable[str]) -> dict[str, tuple[Member, ...]]:
    """By group, its participants in the order of their names."""
    table, version = dl_tables, dl_table_versions
    query = (
        select(
            *(table.c[name] for name in ("table_id", "location", "mirrored_version")),
            table.c.name.label("table"),
            *(version.c[name] for name in ("version", "sha256", "committed_at_ms", "group_id")),
        )
        .join(table, table.c.table_id == version.c.table_id)
        .where(version.c.group_id.in_(sorted(groups)))
        .order_by(version.c.committed_at_ms, version.c.group_id, table.c.name)
    )
    found: defaultdict[str, list[Member]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        members = found[row["group_id"]]
        members.append(Member(**{k: v for k, v in row.items() if k != "group_id"}))
    return {group_id: tuple(members) for group_id, members in found.items()}


def _complete(tables: Sequence[str] | None) -> Select[tuple[int, str]]:
    """Versions that owe a cut, in logs that we publish, of groups that are published whole."""
    status, version, table = dl_mirror_status, dl_table_versions, dl_tables
    other, other_table = dl_table_versions.alias("other"), dl_tables.alias("other_table")
    is_incomplete = exists().where(
        other.c.group_id == version.c.group_id,
        other_table.c.table_id == other.c.table_id,
        other.c.version > other_table.c.mirrored_version,
    )
    query = (
        select(status.c.table_id, version.c.group_id)
        .join(
            version,
            and_(version.c.table_id == status.c.table_id, version.c.version == status.c.version),
        )
        .join(table, table.c.table_id == status.c.table_id)
        .join(dl_mirror_tables, dl_mirror_tables.c.table_id == status.c.table_id)
        .where(
            status.c.artifact == _ARTIFACT,
            status.c.status == "PENDING",
            status.c.version <= table.c.mirrored_version,
            table.c.state.in_(PUBLISHED_STATES),
            dl_mirror_tables.c.state == "OK",
            ~is_incomplete,
        )
        .order_by(status.c.table_id, status.c.version)
    )
    return query if tables is None else query.where(table.c.name.in_(tables))


def _is_of(member: Member) -> Any:
    status = dl_mirror_status
    return and_(
        status.c.table_id == member.table_id,
        status.c.version == member.version,
        status.c.artifact == _ARTIFACT,
    )
