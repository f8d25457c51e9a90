"""What an import refuses: one clear error with table, version and rule, and nothing left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from sqlalchemy import func, select

from mirror_assets.delta.commit_file import encode
from mirror_assets.errors import ConfigurationError, ImportRefusedError, StorageError
from mirror_assets.findings import Severity
from mirror_assets.metastore import import_store, tables
from mirror_assets.metastore.importer import import_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.storage.log_source import open_log
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.delta.samples import a_metadata, a_protocol, a_remove, an_add
from mirror_assets_tests.metastore.logs import (
    START,
    a_log,
    actions_of,
    add_checkpoint,
    info,
    state_of,
)

if TYPE_CHECKING:
    from pathlib import Path

NAME = "sales.orders"
GOOD = (
    [info(0), *START, an_add("a")],
    [info(1), an_add("b")],
    [info(2), a_remove("a")],
    [info(3), an_add("c")],
)
ADD = encode([an_add("x")]).rstrip()


@pytest.fixture
def metastore(metastore_url):
    with a_metastore(metastore_url) as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "orders"


def _rows_left(metastore) -> dict[str, int]:
    with metastore.read() as connection:
        counts = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in tables.metadata.tables.values()
        }
    return {name: count for name, count in counts.items() if count}


def _refused(metastore, source, **options) -> ImportRefusedError:
    before = _rows_left(metastore)
    with pytest.raises(ImportRefusedError) as refused:
        import_table(metastore, source, NAME, **options)
    assert _rows_left(metastore) == before
    error = refused.value
    assert error.table == NAME
    assert error.remedy
    assert error.findings[0].severity is Severity.ERROR
    assert error.findings[0].rule == error.rule
    return error


BAD_LINES = {
    "not JSON": (b'{"add":', "DL-CMT-02"),
    "not an object": (b"[1]", "DL-CMT-02"),
    "not UTF-8": (ADD.replace(b"x", b"\xff"), "DL-CMT-01"),
    "a lone surrogate": (ADD.replace(b'"x"', b'"\\ud800"'), "DL-CMT-02"),
    "a lone surrogate in commitInfo": (b'{"commitInfo":{"a":"\\udc00"}}', "DL-CMT-14"),
    "a NUL": (ADD.replace(b'"x"', b'"x\\u0000"'), "DL-CMT-02"),
    "a control character": (ADD.replace(b'"x"', b'"x\ty"'), "DL-CMT-02"),
    "an integer beyond 64 bit": (
        ADD.replace(b'"size":1000', b'"size":9223372036854775808'),
        "DL-ADD-01",
    ),
    "an integer far beyond": (ADD.replace(b'"size":1000', b'"size":1' + b"0" * 30), "DL-ADD-01"),
    "no path": (b'{"add":{"size":1}}', "DL-ADD-01"),
    "two actions": (b'{"txn":{"appId":"a","version":1},' + ADD[1:], "DL-CMT-03"),
}


@pytest.mark.parametrize(("line", "rule"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_cannot_be_understood_names_version_file_and_line(metastore, root, line, rule):
    source = a_log(root, *GOOD[:2], ADD + b"\n" + line + b"\n", GOOD[3])

    error = _refused(metastore, source)

    found = error.findings[0]
    assert (found.rule, found.version, found.line) == (rule, 2, 2)
    assert found.file == f"{2:020}.json"
    assert error.version == 2


BAD_LOGS = {
    "two metaData": ([*GOOD[0], a_metadata(name="other")], "DL-CMT-07"),
    "two protocols": ([*GOOD[0], a_protocol()], "DL-CMT-08"),
    "no protocol": ([info(0), START[1], an_add("a")], "DL-CMT-06"),
    "no metaData": ([info(0), START[0], an_add("a")], "DL-CMT-06"),
    "no schema": ([START[0], a_metadata(schema_string="")], "DL-META-01"),
    "a reader version of the future": (
        [replace(a_protocol(reader=[]), min_reader_version=4), START[1]],
        "DL-PROT-02",
    ),
    "an unknown reader feature": ([a_protocol(reader=["telepathy"]), START[1]], "DL-PROT-02"),
    "lists without their version": (
        [replace(a_protocol(reader=[]), min_reader_version=1), START[1]],
        "DL-PROT-03",
    ),
    "a feature that only readers list": (
        [
            replace(a_protocol(reader=["timestampNtz"]), writer_features=[]),
            START[1],
        ],
        "DL-PROT-06",
    ),
    "a catalog of its own": (
        [a_protocol("inCommitTimestamp", reader=["catalogManaged"]), START[1]],
        "DL-CAT-01",
    ),
    "a catalog by its old name": (
        [a_protocol("inCommitTimestamp", reader=["catalogOwned-preview"]), START[1]],
        "DL-CAT-01",
    ),
}


@pytest.mark.parametrize(("first", "rule"), BAD_LOGS.values(), ids=BAD_LOGS)
def test_a_state_that_cannot_be_trusted_is_refused(metastore, root, first, rule):
    error = _refused(metastore, a_log(root, first, *GOOD[1:]))

    assert (error.rule, error.version) == (rule, 0)


@pytest.mark.parametrize("metastore_url", ["sqlite"], indirect=True)
def test_what_a_later_version_mends_is_a_warning(metastore, root):
    bare = [a_protocol(reader=["telepathy"]), a_metadata(schema_string="")]
    source = a_log(root, [info(0), *bare], [info(1), *START, an_add("a")])

    report = import_table(metastore, source, NAME)

    severe = {finding.rule: finding.severity for finding in report.findings}
    assert severe == {"DL-PROT-02": Severity.WARNING, "DL-META-01": Severity.WARNING}


@pytest.mark.parametrize("metastore_url", ["sqlite"], indirect=True)
def test_writer_features_that_are_not_known_are_a_warning(metastore, root):
    source = a_log(root, [info(0), a_protocol("somethingNew"), START[1]])

    report = import_table(metastore, source, NAME)

    assert [(f.rule, f.severity) for f in report.findings] == [("DL-PROT-11", Severity.WARNING)]


def _without(root: Path, *versions: int) -> None:
    for version in versions:
        (root / "_delta_log" / f"{version:020}.json").unlink()


def test_a_gap_is_refused(metastore, root):
    source = a_log(root, *GOOD)
    _without(root, 2)

    error = _refused(metastore, source)

    assert error.rule == "DL-FILE-03"
    assert "version 2" in error.message


def test_a_gap_below_the_floor_does_not_matter(metastore, root):
    source = a_log(root, *GOOD)
    add_checkpoint(root, 2, actions_of(state_of(root, 2)))
    _without(root, 1)

    assert import_table(metastore, source, NAME).floor_version == 2


def test_commits_without_the_first_one_need_a_checkpoint(metastore, root):
    source = a_log(root, *GOOD)
    add_checkpoint(root, 1, b"")
    _without(root, 0)

    assert _refused(metastore, source).rule == "DL-FILE-04"


def test_an_empty_log_is_refused(metastore, root):
    (root / "_delta_log").mkdir(parents=True)
    (root / "_delta_log" / "README").touch()

    assert _refused(metastore, open_log(str(root))).rule == "DL-FILE-04"


def test_a_place_without_a_log_is_an_error_of_the_store(metastore, root):
    with pytest.raises(StorageError, match="no Delta table"):
        import_table(metastore, open_log(str(root)), NAME)


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_that_the_log_does_not_have_is_refused(metastore, root, version):
    assert _refused(metastore, a_log(root, *GOOD), up_to_version=version).rule == "DL-FILE-04"


@pytest.mark.parametrize("name", ["a;drop table dl_tables", "<b>", "", "a.b.c.d", "é", "a\0"])
def test_a_name_that_is_none_is_refused(metastore, root, name):
    source = a_log(root, *GOOD)
    for dry_run in (True, False):
        with pytest.raises(ConfigurationError):
            import_table(metastore, source, name, dry_run=dry_run)


def test_a_torn_checkpoint_is_a_warning_where_the_commits_are_there(metastore, root):
    source = a_log(root, *GOOD)
    path = add_checkpoint(root, 2, actions_of(state_of(root, 2)))
    path.write_bytes(path.read_bytes()[:-40])

    report = import_table(metastore, source, NAME)

    found = [(f.rule, f.severity, f.version) for f in report.findings]
    assert found == [("DL-FILE-13", Severity.WARNING, 2)]


def test_a_torn_checkpoint_is_no_floor(metastore, root):
    source = a_log(root, *GOOD)
    good = add_checkpoint(root, 2, actions_of(state_of(root, 2)))
    add_checkpoint(root, 1, good.read_bytes()[:200])
    _without(root, 0)

    report = import_table(metastore, source, NAME)
    assert report.floor_version == 2
    assert [f.rule for f in report.findings] == ["DL-FILE-13"]


@pytest.mark.parametrize("keep_commits", [True, False])
def test_a_missing_sidecar(metastore, root, keep_commits):
    source = a_log(root, *GOOD)
    name = f"{2:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    top = b'{"checkpointMetadata":{"version":2}}\n' + encode(START)
    top += b'{"sidecar":{"path":"gone.parquet","sizeInBytes":1,"modificationTime":1}}\n'
    (root / "_delta_log" / name).write_bytes(top)

    if keep_commits:
        report = import_table(metastore, source, NAME)
        assert [f.rule for f in report.findings] == ["DL-FILE-13"]
    else:
        _without(root, 0)
        assert _refused(metastore, source).rule == "DL-FILE-04"


@pytest.mark.parametrize("missing", [0, 1])
def test_a_floor_without_protocol_or_metadata_is_refused(metastore, root, missing):
    source = a_log(root, *GOOD)
    actions = actions_of(state_of(root, 2))
    kept = [action for action in actions if type(action) is not type(START[missing])]
    add_checkpoint(root, 2, kept)
    _without(root, 0)

    assert _refused(metastore, source).rule == "DL-CP-04"


def test_a_misnamed_commit_that_some_readers_see_is_refused(metastore, root):
    source = a_log(root, *GOOD)
    (root / "_delta_log" / "00004.json").write_bytes(ADD)

    assert _refused(metastore, source).rule == "DL-FILE-01"


def test_staged_commits_belong_to_another_catalog(metastore, root):
    source = a_log(root, *GOOD)
    staged = root / "_delta_log" / "_staged_commits"
    staged.mkdir()
    (staged / f"{4:020}.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_bytes(ADD)

    assert _refused(metastore, source).rule == "DL-CAT-08"


def test_a_bad_line_below_the_floor_is_kept_as_it_is(metastore, root):
    source = a_log(root, GOOD[0], b'{"add":\n', *GOOD[2:])
    actions = [*START, an_add("b")]
    add_checkpoint(root, 2, actions)

    _without(root, 0)
    report = import_table(metastore, source, NAME)

    written = {c.version: c.encode(NAME) for c in LogReader(metastore).commits(NAME)}
    assert written[1] == b'{"add":\n'
    assert report.floor_version == 2


def test_rows_that_contradict_the_log_refuse_the_import(metastore, root, monkeypatch):
    """A fault in the writing of ends is found by the audit, which does not share it."""
    original = import_store.ImportStore._mark
    monkeypatch.setattr(import_store.ImportStore, "_mark", lambda *_: None)
    error = _refused(metastore, a_log(root, *GOOD))

    assert error.rule == "DL-REC-01"
    monkeypatch.setattr(import_store.ImportStore, "_mark", original)
    assert import_table(metastore, a_log(root, *GOOD), NAME).version == 3


def test_totals_that_contradict_the_log_refuse_the_import(metastore, root, monkeypatch):
    monkeypatch.setattr(import_store.FileBatch, "change", lambda *_: None)

    assert _refused(metastore, a_log(root, *GOOD)).rule == "DL-REC-01"


def test_a_dry_run_refuses_what_an_import_refuses(metastore, root):
    assert _refused(metastore, a_log(root, *GOOD, b"{"), dry_run=True).rule == "DL-CMT-02"
