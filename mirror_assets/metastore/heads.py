"""Heads: the rows of `dl_tables`, locked by whoever commits, and what is in force there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final

from sqlalchemy import Connection, select

from mirror_assets.delta.actions import Action, MetaData, TableProtocol
from mirror_assets.delta.path_rules import is_storable
from mirror_assets.errors import TableNotFoundError, TableStateError
from mirror_assets.metastore.dialect import Row
from mirror_assets.metastore.effects import Glance, touched_paths
from mirror_assets.metastore.log_reader import TableRecord, metadata_at, protocol_at
from mirror_assets.metastore.statements import Statements
from mirror_assets.metastore.tables import dl_add_files, dl_remove_files, dl_tables

_CACHED: Final = 4_096
_COLUMNS: Final = tuple(dl_tables.columns.keys())


class TableState:
    """The states of a registered table."""

    ACTIVE: Final = "ACTIVE"
    IMPORTING: Final = "IMPORTING"
    #: takes no commits any more; what it has is still being published
    RELEASING: Final = "RELEASING"
    #: its log belongs to file-based writers
    RELEASED: Final = "RELEASED"
    #: takes the log's own versions over
    ADOPTING: Final = "ADOPTING"
    #: moves to another place
    FORKING: Final = "FORKING"


#: states in which a table's commits are published
PUBLISHED_STATES: Final = (TableState.ACTIVE, TableState.RELEASING)

#: why a table takes no commits, and the way out
_CLOSED: Final = {
    TableState.IMPORTING: (
        "the table's import has not been finished",
        "run the same `mirror-assets import` again: it goes on where it stopped",
    ),
    TableState.RELEASING: (
        "the table is being released, and takes no commits any more",
        "`mirror-assets release {name}` ends it, `mirror-assets adopt {name} --apply` undoes it",
    ),
    TableState.RELEASED: (
        "the table was released: its log belongs to file-based writers",
        "`mirror-assets adopt {name} --apply` takes it back, with what they wrote",
    ),
    TableState.ADOPTING: (
        "versions of the table's log are being adopted",
        "`mirror-assets adopt {name} --apply` again ends what was interrupted",
    ),
    TableState.FORKING: (
        "the table is being forked to another place",
        "`mirror-assets fork {name} --to URI` to another empty place ends what was interrupted",
    ),
}


def lock_heads(
    statements: Statements, connection: Connection, names: Iterable[str]
) -> tuple[dict[str, TableRecord], int]:
    """Lock the tables in id order; return them by name, and the database's time.

    Raises TableNotFoundError, and TableStateError for a table that takes no commits.
    """
    wanted = sorted(set(names))
    for name in wanted:
        if not is_storable(name):
            _require_active(None, name)
    if len(wanted) == 1:
        rows = statements.lock_head.run(connection, {"name": wanted[0]})
    else:
        dialect = statements.dialect
        query = select(dl_tables, dialect.now_ms()).where(dl_tables.c.name.in_(wanted))
        rows = list(connection.execute(dialect.lock(query.order_by(dl_tables.c.table_id))))
    return _heads(rows, wanted)


def lock_head(
    statements: Statements,
    connection: Connection,
    name: str,
    actions: Sequence[Action],
    known: TableRecord | None,
) -> tuple[TableRecord, int, Glance | None]:
    """Lock one table, and look up what a commit of the actions touches at the same time.

    For that one must know the table's id, from an earlier commit: `known` is the head it had then.
    Raises as `lock_heads`.
    """
    paths = touched_paths(actions)
    if known is None or not paths or not _are_storable(paths):
        heads, now_ms = lock_heads(statements, connection, [name])
        return heads[name], now_ms, None
    wanted = {"table_id": known.table_id, "texts": statements.dialect.texts(paths)}
    ends = [dl_add_files.c.removed_version]
    if known.num_removes:
        ends.append(dl_remove_files.c.superseded_version)
    head_rows, live, *standing = statements.dialect.run(
        connection,
        [
            statements.lock_head.with_({"name": name}),
            *(statements.open_rows(end).with_(wanted) for end in ends),
        ],
    )
    heads, now_ms = _heads(head_rows, [name])
    if heads[name].table_id != known.table_id:  # dropped since, and created anew
        return heads[name], now_ms, None
    glance = Glance(live=live, standing=standing[0] if standing else None)
    return heads[name], now_ms, glance


def _heads(rows: Sequence[Row], wanted: Sequence[str]) -> tuple[dict[str, TableRecord], int]:
    heads = {}
    now_ms = 0
    for *values, time_ms in rows:
        head = TableRecord(**dict(zip(_COLUMNS, values, strict=True)))
        heads[head.name] = head
        now_ms = int(time_ms)
    for name in wanted:
        _require_active(heads.get(name), name)
    return heads, now_ms


def _are_storable(paths: Sequence[str]) -> bool:
    """Whether SQL can be asked for them; what is wrong with them, the rules will say."""
    try:
        return is_storable("".join(paths))
    except TypeError:
        return False


class InForce:
    """Protocols and metadata by the version that set them: immutable, so a bounded cache holds.

    Also the head that each table had when it was last seen: a hint, and no more.
    """

    def __init__(self) -> None:
        self._heads: OrderedDict[str, TableRecord] = OrderedDict()
        self._known: OrderedDict[tuple[int, int, int, int], tuple[TableProtocol, MetaData]] = (
            OrderedDict()
        )
        self._lock = Lock()

    def at_head(self, connection: Connection, head: TableRecord) -> tuple[TableProtocol, MetaData]:
        """What the next commit must obey."""
        #: a dropped table's id may be another's today
        table = (head.table_id, head.created_at_ms)
        key = (*table, head.protocol_version, head.metadata_version)
        with self._lock:
            found = self._known.get(key)
        if found is None:
            found = (
                protocol_at(connection, head, head.protocol_version),
                metadata_at(connection, head, head.metadata_version),
            )
            with self._lock:
                self._known[key] = found
                while len(self._known) > _CACHED:
                    self._known.popitem(last=False)
        return found

    def last_seen(self, name: str) -> TableRecord | None:
        """The head as it was some time ago."""
        return self._heads.get(name)

    def see(self, head: TableRecord) -> None:
        """Remember a head."""
        with self._lock:
            self._heads[head.name] = head
            while len(self._heads) > _CACHED:
                self._heads.popitem(last=False)

    def forget(self) -> None:
        """After a lost connection the database may be another, older one."""
        with self._lock:
            self._known.clear()
            self._heads.clear()


def _require_active(head: TableRecord | None, name: str) -> None:
    if head is None:
        message = "no table of this name is registered"
        raise TableNotFoundError(message, table=name)
    if head.state != TableState.ACTIVE:
        raise closed_error(head)


def closed_error(head: TableRecord) -> TableStateError:
    """Why the table takes no commits, and what to do about it."""
    message, remedy = why_closed(head.state)
    return TableStateError(message, table=head.name, remedy=remedy.format(name=head.name))


def why_closed(state: str) -> tuple[str, str]:
    """Why a table in this state takes no commits, and the way out of it for `{name}`."""
    unknown = (f"the table takes no commits: it is {state}", "`mirror-assets status` tells why")
    return _CLOSED.get(state, unknown)


def require_not_released(head: TableRecord) -> None:
    """Raise TableStateError for a table whose log is not ours to write any more."""
    if head.state == TableState.RELEASED:
        raise closed_error(head)
