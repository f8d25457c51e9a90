"""What a test starts from: a metastore, the table it needs, the actions it commits.

Everything has a default, and everything a test cares about is a keyword:

    table = a_table(metastore, features=["deletionVectors"])
    writer.commit(table, [add("a.parquet", stats=stats_of(10)), remove("b.parquet")])
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mirror_assets.delta.actions import AddFile, CdcFile, MetaData, RemoveFile, Txn, UnknownAction
from mirror_assets.delta.table_state import TableState
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.migrate import upgrade
from mirror_assets.metastore.outcomes import Committed
from mirror_assets.metastore.registry import create_table
from mirror_assets_tests.delta.samples import NOW_MS, a_field, a_remove, a_schema, an_add

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror_assets.delta.actions import Action
    from mirror_assets.metastore.outcomes import Outcome

File = TypeVar("File", AddFile, RemoveFile)
add = an_add
remove = a_remove
_numbers = itertools.count(1)


@contextmanager
def a_metastore(url: str) -> Iterator[Metastore]:
    """A metastore with the newest schema in the empty database of a URL."""
    metastore = Metastore.open(url)
    try:
        upgrade(metastore.engine)
        yield metastore
    finally:
        metastore.close()


def a_table(
    metastore: Metastore,
    name: str | None = None,
    *,
    location: str | None = None,
    columns: Sequence[str] = ("id",),
    partitioned_by: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
) -> str:
    """Create a table and return its name. `partitioned_by` gives partition columns their type."""
    partitions = partitioned_by or {}
    name = name or f"sales.table_{next(_numbers)}"
    fields = [a_field(column) for column in columns]
    fields += [a_field(column, kind) for column, kind in partitions.items()]
    create_table(
        metastore,
        name,
        location or f"/lake/{name}",
        a_schema(*fields),
        partition_columns=list(partitions),
        configuration={
            **{f"delta.feature.{feature}": "supported" for feature in features},
            **(configuration or {}),
        },
    )
    return name


def cdc(path: str = "_change_data/cdc-0.parquet", **members: Any) -> CdcFile:
    defaults: dict[str, Any] = {"partition_values": {}, "size": 10, "data_change": False}
    return CdcFile(path=path, **defaults | members)


def txn(app_id: str = "app", version: int = 1, **members: Any) -> Txn:
    defaults: dict[str, Any] = {"last_updated": NOW_MS}
    return Txn(app_id=app_id, version=version, **defaults | members)


def unknown(name: str = "somethingNew", value: object = None) -> UnknownAction:
    return UnknownAction(fields={name: {"since": "later"} if value is None else value})


def changed(metadata: MetaData, **properties: str) -> MetaData:
    """The metaData with more table properties."""
    configuration = {**metadata.configuration, **properties}
    return msgspec.structs.replace(metadata, configuration=configuration)


def commit(metastore: Metastore, table: str, *actions: Action, **options: Any) -> Committed:
    """Commit, and insist that it happened."""
    outcome: Outcome = SqlTxnLogWriter(metastore).commit(table, actions, **options)
    assert isinstance(outcome, Committed), outcome
    return outcome


def paths(files: Iterator[AddFile] | Iterator[RemoveFile]) -> list[str]:
    return [file.path for file in files]


def state_in_sql(metastore: Metastore, table: str, version: int | None = None) -> TableState:
    """The table state that SQL tells, in the form of the replay in memory."""
    reader = LogReader(metastore)
    summary = reader.summary(table, version)
    state = TableState(
        version=summary.version,
        protocol=summary.protocol,
        metadata=summary.metadata,
        files=_by_key(reader.live_files(table, version)),
        tombstones=_by_key(reader.tombstones(table, version)),
        txns=reader.txns(table, version),
        domains=reader.domains(table, version),
    )
    assert (state.num_files, state.size_bytes) == (summary.num_files, summary.size_bytes)
    return state


def _by_key(files: Iterator[File]) -> dict[tuple[str, str], File]:
    listed = list(files)
    found = {(file.path, file.dv_id): file for file in listed}
    assert len(found) == len(listed), "a logical file is there twice"
    return found
