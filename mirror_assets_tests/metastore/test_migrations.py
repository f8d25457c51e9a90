"""The schema: migrated and declared alike, upgraded with its data, refused when it is not ours."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from mirror_assets.errors import SchemaRevisionError
from mirror_assets.metastore import migrate, tables
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import Committed
from mirror_assets_tests.builders import a_table, add, commit, paths, remove, state_in_sql, txn


@pytest.fixture
def opened(metastore_url):
    """A database without any schema."""
    metastore = Metastore.open(metastore_url)
    yield metastore
    metastore.close()


@pytest.fixture
def declared(opened, tmp_path, request):
    """Another database of the same engine, with the declared tables."""
    match opened.dialect.name:
        case "postgresql":
            url = request.getfixturevalue("postgres_url")()
        case name:
            url = f"{name}:///{tmp_path / 'declared.db'}"
    metastore = Metastore.open(url)
    with metastore.engine.begin() as connection:
        tables.metadata.create_all(connection)
    yield metastore
    metastore.close()


def schema_of(metastore):
    """All that an engine tells of its tables, in an order of our own."""
    with metastore.engine.connect() as connection:
        match metastore.dialect.name:
            case "sqlite":
                return sqlite_schema(connection)
            case "duckdb":
                return duckdb_schema(connection)
            case _:
                return inspected_schema(sa.inspect(connection))


def sqlite_schema(connection):
    """With the statements themselves, which say WITHOUT ROWID and the conditions of indexes."""
    query = sa.text("select name, sql from sqlite_master where sql is not null")
    statements = {name: normalised(sql) for name, sql in connection.execute(query)}
    statements.pop("alembic_version", None)
    return statements, inspected_schema(sa.inspect(connection))


def normalised(statement):
    """The parts of a create statement without regard to the order of its constraints."""
    text = re.sub(r"\s+", " ", statement).replace('"', "")
    head, _, rest = text.partition("(")
    body, _, tail = rest.rpartition(")")
    parts = re.split(r",\s*(?![^(]*\))", body)
    return head.strip(), sorted(part.strip() for part in parts), tail.strip()


def duckdb_schema(connection):
    columns = sa.text(
        "select table_name, column_name, data_type, is_nullable, column_default"
        " from information_schema.columns where table_name like 'dl_%' order by 1, ordinal_position"
    )
    constraints = sa.text(
        "select table_name, constraint_type, cast(constraint_column_names as text)"
        " from duckdb_constraints() where table_name like 'dl_%'"
        " and constraint_type != 'NOT NULL' order by all"
    )
    indexes = sa.text("select table_name, sql from duckdb_indexes() order by all")
    return [connection.execute(query).all() for query in (columns, constraints, indexes)]


def inspected_schema(inspector):
    names = [name for name in inspector.get_table_names() if name != "alembic_version"]
    return {
        name: {
            "columns": [
                (c["name"], str(c["type"]), c["nullable"], c["default"])
                for c in inspector.get_columns(name)
            ],
            "primary key": inspector.get_pk_constraint(name),
            "uniques": by_name(inspector.get_unique_constraints(name)),
            "indexes": by_name(inspector.get_indexes(name)),
            "foreign keys": inspector.get_foreign_keys(name),
        }
        for name in names
    }


def by_name(things):
    return sorted(
        ({key: shown(value) for key, value in thing.items()} for thing in things),
        key=lambda thing: thing["name"],
    )


def shown(value):
    """An index's condition is text on PostgreSQL, and a clause that knows no equal on SQLite."""
    if isinstance(value, dict):
        return {key: shown(member) for key, member in value.items()}
    return str(value)


def test_migrations_and_declarations_give_the_same_schema(opened, declared):
    migrate.upgrade(opened.engine)
    assert schema_of(opened) == schema_of(declared)


def test_the_code_s_revision_is_the_newest_migration():
    script = ScriptDirectory.from_config(migrate.alembic_config())
    assert script.get_heads() == [migrate.SCHEMA_REVISION]


def test_to_init_twice_is_to_init_once(opened):
    first = migrate.upgrade(opened.engine)
    before = schema_of(opened)
    table = a_table(opened)
    assert migrate.upgrade(opened.engine) == first == migrate.SCHEMA_REVISION
    assert schema_of(opened) == before
    assert LogReader(opened).table(table).head_version == 0


@pytest.fixture
def with_history(opened):
    """A table with commits, and one that was imported up to version 1 and committed to since."""
    migrate.upgrade(opened.engine)
    own, imported = a_table(opened, "s.own"), a_table(opened, "s.imported")
    for table in (own, imported):
        commit(opened, table, add("a", size=1), add("b", size=2), txn("app", 1))
        commit(opened, table, remove("a"), add("c", size=3))
    versions = tables.dl_table_versions
    with opened.write() as connection:
        connection.execute(
            versions.update()
            .values(source="import")
            .where(versions.c.table_id == 2, versions.c.version <= 1)
        )
    return opened


def back_to_the_first_revision(metastore):
    """Undo what came after it, and keep the rows it has."""
    with metastore.engine.begin() as connection:
        rows = {
            table.name: connection.execute(sa.select(table)).mappings().all()
            for table in tables.metadata.sorted_tables
        }
        for name in sa.inspect(connection).get_table_names():
            connection.execute(sa.schema.DropTable(sa.Table(name, sa.MetaData())))
    with metastore.engine.begin() as connection:
        command.upgrade(migrate.alembic_config(connection), "0001")
        for name in sa.inspect(connection).get_table_names():
            if rows.get(name):
                insert_known_columns(connection, name, rows[name])


def insert_known_columns(connection, name, rows):
    anything = sa.select(sa.text("*")).select_from(sa.table(name)).limit(0)
    columns = [column for column in connection.execute(anything).keys() if column in rows[0]]  # noqa: SIM118
    into = sa.table(name, *map(sa.column, columns))
    connection.execute(into.insert(), [{c: row[c] for c in columns} for row in rows])


def test_an_older_schema_is_upgraded_with_its_data(with_history):
    metastore = with_history
    expected = {
        (table, version): state_in_sql(metastore, table, version)
        for table in ("s.own", "s.imported")
        for version in range(3)
    }
    files = [found.encode("s.own") for found in LogReader(metastore).commits("s.own")]
    back_to_the_first_revision(metastore)
    older = Metastore.open(metastore.engine.url.render_as_string(hide_password=False))
    with pytest.raises(SchemaRevisionError, match="older"):
        LogReader(older).tables()
    older.close()
    assert migrate.upgrade(metastore.engine) == migrate.SCHEMA_REVISION
    for (table, version), state in expected.items():
        assert state_in_sql(metastore, table, version) == state
    reader = LogReader(metastore)
    assert [found.encode("s.own") for found in reader.commits("s.own")] == files
    assert statuses(reader, "s.own") == ["PENDING", "PENDING", "PENDING"]
    assert statuses(reader, "s.imported") == ["SUCCESS", "SUCCESS", "PENDING"]
    mirrored = [reader.table(name).mirrored_version for name in ("s.own", "s.imported")]
    assert mirrored == [-1, 1]
    assert isinstance(SqlTxnLogWriter(metastore).commit("s.own", [add("d")]), Committed)
    assert paths(reader.live_files("s.own")) == ["b", "c", "d"]


def statuses(reader, table):
    return [row["mirror_status"] for row in reversed(reader.history(table))]


def test_an_upgraded_schema_equals_the_declared_one(with_history, declared):
    back_to_the_first_revision(with_history)
    migrate.upgrade(with_history.engine)
    assert schema_of(with_history) == schema_of(declared)


def test_a_database_without_schema_is_refused(opened):
    with pytest.raises(SchemaRevisionError) as caught:
        LogReader(opened).tables()
    assert "mirror-assets init" in caught.value.remedy
    with pytest.raises(SchemaRevisionError):
        SqlTxnLogWriter(opened).commit("s.t", [add("a")])


def test_a_schema_of_a_newer_release_is_refused_and_left_alone(opened):
    migrate.upgrade(opened.engine)
    with opened.engine.begin() as connection:
        connection.execute(sa.text("update alembic_version set version_num = '9999'"))
    newer = Metastore.open(opened.engine.url.render_as_string(hide_password=False))
    with pytest.raises(SchemaRevisionError, match="newer"):
        LogReader(newer).tables()
    with pytest.raises(SchemaRevisionError, match="newer") as caught:
        migrate.upgrade(newer.engine)
    assert "9999" in str(caught.value)
    newer.close()


def test_a_migration_that_fails_leaves_the_schema_as_it_was(opened, monkeypatch):
    """One transaction: whoever tries again begins where the first began."""

    def breaks(*_, **__):
        raise ZeroDivisionError

    with opened.engine.connect() as connection, connection.begin():
        command.upgrade(migrate.alembic_config(connection), "0001")
    before = schema_of(opened)
    monkeypatch.setattr("alembic.operations.Operations.create_index", breaks)
    monkeypatch.setattr("alembic.operations.Operations.execute", breaks)
    with pytest.raises(ZeroDivisionError):
        migrate.upgrade(opened.engine)
    monkeypatch.undo()
    assert schema_of(opened) == before
    assert migrate.upgrade(opened.engine) == migrate.SCHEMA_REVISION
