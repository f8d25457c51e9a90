"""Databases that are read-only, away, or none at all: said in our words, by one error."""

from __future__ import annotations

import pytest

from mirror_assets.errors import (
    ConfigurationError,
    DatabaseReadOnlyError,
    DatabaseUnavailableError,
    MirrorAssetsError,
)
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets_tests.builders import a_table, add, commit, paths


def read_only(metastore):
    """The same database through a door that lets nothing in."""
    url = metastore.engine.url
    match metastore.dialect.name:
        case "sqlite":
            url = url.set(database=f"file:{url.database}", query={"mode": "ro", "uri": "true"})
        case "duckdb":
            url = url.set(query={"access_mode": "read_only"})
        case _:
            url = url.set(query={"options": "-c default_transaction_read_only=on"})
    return Metastore.open(url.render_as_string(hide_password=False))


def test_a_read_only_database_can_be_read_and_says_why_it_is_not_written(metastore, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    metastore.close()
    closed = read_only(metastore)
    try:
        assert paths(LogReader(closed).live_files(table)) == ["a"]
        with pytest.raises(DatabaseReadOnlyError) as caught:
            SqlTxnLogWriter(closed).commit(table, [add("b")])
        assert caught.value.remedy
        with pytest.raises(DatabaseReadOnlyError):
            a_table(closed)
    finally:
        closed.close()
    assert reader.table(table).head_version == 1


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://nobody@127.0.0.1:1/nothing", DatabaseUnavailableError),
        ("sqlite:///{folder}/no/such/folder.db", DatabaseUnavailableError),
        ("duckdb:///{folder}/no/such/folder.duckdb", DatabaseUnavailableError),
        ("sqlite:///{folder}/letter.txt", ConfigurationError),
        ("duckdb:///{folder}/letter.txt", MirrorAssetsError),
        ("sqlite:///{folder}", MirrorAssetsError),
        ("duckdb:///{folder}", MirrorAssetsError),
    ],
)
def test_what_is_no_database_is_said_by_one_error_with_a_remedy(tmp_path, url, error):
    letter = "Dear reader, this is no database. " * 100
    (tmp_path / "letter.txt").write_text(letter)
    metastore = Metastore.open(url.format(folder=tmp_path))
    try:
        with pytest.raises(error) as caught:
            LogReader(metastore).tables()
        with pytest.raises(error):
            SqlTxnLogWriter(metastore).commit("s.t", [add("a")])
    finally:
        metastore.close()
    assert caught.value.remedy
    assert (tmp_path / "letter.txt").read_text() == letter


@pytest.mark.parametrize("url", ["mysql://localhost/x", "nonsense", "", "sqlite", "://"])
def test_a_url_that_no_engine_answers_to_is_a_wrong_setting(url):
    with pytest.raises(ConfigurationError) as caught:
        Metastore.open(url)
    assert caught.value.remedy
