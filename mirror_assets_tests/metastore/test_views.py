"""The views of the metastore, on each engine: the same rows, whole or in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror_assets.errors import ConfigurationError, TableNotFoundError, VersionNotFoundError
from mirror_assets.metastore.views import Condition, plan_slices, view_of
from mirror_assets_tests.builders import a_table, add, commit, remove

if TYPE_CHECKING:
    from mirror_assets.metastore.database import Metastore


@pytest.fixture
def table(metastore: Metastore) -> str:
    """A table of which version 3 has files b and c, and another one."""
    name = a_table(metastore, "sales.orders", partitioned_by={"p": "string"})
    one, two = {"partition_values": {"p": "1"}}, {"partition_values": {"p": "2"}}
    commit(metastore, name, add("p=1/a", size=10, **one))
    commit(metastore, name, add("p=1/b", size=20, **one), add("p=2/c", size=30, **two))
    commit(metastore, name, remove("p=1/a", **one))
    commit(metastore, a_table(metastore, "sales.others"), add("d", size=5))
    return name


def read(
    metastore: Metastore,
    view: str,
    *columns: str,
    where: tuple[Condition, ...] = (),
    table: str | None = None,
    version: int | None = None,
    count: int = 1,
) -> list[tuple[Any, ...]]:
    groups = plan_slices(metastore, table=table, version=version, count=count)
    batches = [b for group in groups for b in view_of(view).read(metastore, columns, where, group)]
    for batch in batches:
        assert batch.schema.names == list(columns)
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("count", [1, 3, 20])
def test_every_view_shows_its_rows_once_however_it_is_sliced(
    metastore: Metastore, table: str, count: int
) -> None:
    def seen(view: str, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
        return read(metastore, view, *columns, count=count, **options)

    assert seen("tables", "table", "head_version") == [("sales.orders", 3), ("sales.others", 1)]
    assert len(seen("commits", "table", "version", "operation")) == 6
    assert seen("history", "version", "num_adds", "mirror_status", table=table) == [
        (version, adds, "PENDING") for version, adds in enumerate([0, 1, 2, 0])
    ]
    assert seen("files", "path", "size", table=table) == [("p=1/b", 20), ("p=2/c", 30)]
    assert seen("files", "path", table=table, version=1) == [("p=1/a",)]
    assert seen("partitions", "table", "num_files", "size_bytes") == [
        ("sales.orders", 1, 20),
        ("sales.orders", 1, 30),
        ("sales.others", 1, 5),
    ]
    assert seen("lag", "table", "lag_versions", "is_behind") == [
        ("sales.orders", 4, 1),
        ("sales.others", 2, 1),
    ]
    assert len(seen("mirror_status", "table", "version", "status")) == 6


@pytest.mark.parametrize(
    ("condition", "paths"),
    [
        (Condition(column="size", test=">", value=20), ["p=2/c"]),
        (Condition(column="size", test="<=", value=20), ["p=1/b"]),
        (Condition(column="path", test="=", value="p=1/b"), ["p=1/b"]),
        (Condition(column="path", test="in", value=("p=1/b", "x")), ["p=1/b"]),
        (Condition(column="path", test="prefix", value="p=2"), ["p=2/c"]),
        (Condition(column="tags", test="null"), ["p=1/b", "p=2/c"]),
        (Condition(column="tags", test="notnull"), []),
    ],
)
def test_a_condition_is_answered_by_sql(
    metastore: Metastore, table: str, condition: Condition, paths: list[str]
) -> None:
    assert read(metastore, "files", "path", where=(condition,), table=table) == [
        (path,) for path in paths
    ]


def test_every_column_of_every_view_can_be_read(metastore: Metastore, table: str) -> None:
    names = ("tables", "commits", "history", "files", "partitions", "mirror_status", "lag")
    for name in names:
        assert read(metastore, name, *view_of(name).kinds, table=table)
    with pytest.raises(ConfigurationError, match="no view 'nothing'"):
        view_of("nothing")


@pytest.mark.parametrize("version", [-1, 4])
def test_a_table_or_version_that_is_not_there_is_no_empty_answer(
    metastore: Metastore, table: str, version: int
) -> None:
    with pytest.raises(VersionNotFoundError, match="does not have this version"):
        read(metastore, "files", "path", table=table, version=version)
    with pytest.raises(TableNotFoundError, match="no table of this name"):
        read(metastore, "files", "path", table="sales.order")
