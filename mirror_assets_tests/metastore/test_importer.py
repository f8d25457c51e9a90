"""Taking a table over: state at every version, exact bytes, floors, and what is left afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from mirror_assets.delta.actions import AddFile, CheckpointMetadata, RemoveFile, Sidecar
from mirror_assets.delta.commit_file import encode
from mirror_assets.errors import ImportRefusedError, TableExistsError, VersionNotFoundError
from mirror_assets.metastore import import_decoder, import_store, tables
from mirror_assets.metastore.importer import import_table
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets_tests.builders import a_metastore, commit, state_in_sql, txn, unknown
from mirror_assets_tests.delta.samples import (
    NOW_MS,
    a_domain,
    a_remove,
    a_vector,
    an_add,
)
from mirror_assets_tests.metastore.logs import (
    START,
    a_log,
    actions_of,
    add_checkpoint,
    checkpoint_bytes,
    info,
    state_of,
)

if TYPE_CHECKING:
    from pathlib import Path

NAME = "sales.orders"
HISTORY = (
    [info(0), *START, an_add("a"), an_add("b", size=7)],
    [info(1), an_add("c"), a_remove("a"), txn("app", 1)],
    [info(2), an_add("a", size=11), a_domain("d"), an_add("b", size=8)],
    [info(3), a_remove("b"), an_add("b", deletion_vector=a_vector())],
    [
        info(4),
        a_remove("b", deletion_vector=a_vector()),
        an_add("b", deletion_vector=a_vector(offset=2)),
        txn("app", 2),
        a_domain("d", removed=True),
    ],
    [info(5), a_remove("a"), a_remove("never-there"), unknown()],
    [info(6), a_remove("a"), an_add("twice"), an_add("twice", size=2)],
    [info(7), an_add("both"), a_remove("both"), a_remove("c"), an_add("c", size=3)],
)


@pytest.fixture
def metastore(metastore_url):
    with a_metastore(metastore_url) as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "orders"


def _small_batches(monkeypatch, rows: int = 3) -> None:
    monkeypatch.setattr(import_store, "_BATCH_ROWS", rows)
    monkeypatch.setattr(import_decoder, "PART_ROWS", rows)


def _written(metastore, name: str = NAME) -> dict[int, bytes]:
    return {commit.version: commit.encode(name) for commit in LogReader(metastore).commits(name)}


def _files(root: Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in (root / "_delta_log").glob("*.json")}


def _rows_left(metastore) -> int:
    with metastore.read() as connection:
        return sum(
            connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in tables.metadata.tables.values()
        )


@pytest.mark.parametrize("rows", [20_000, 3])
def test_the_state_at_every_version_is_that_of_the_log(metastore, root, monkeypatch, rows):
    _small_batches(monkeypatch, rows)

    report = import_table(metastore, a_log(root, *HISTORY), NAME)

    for version in range(len(HISTORY)):
        assert state_in_sql(metastore, NAME, version) == state_of(root, version)
    assert (report.version, report.commits, report.adds, report.removes) == (7, 8, 11, 8)
    assert report.parity.versions == 8
    assert report.parity.file_rows == 19


def test_a_table_that_was_taken_over_takes_commits(metastore, root):
    import_table(metastore, a_log(root, *HISTORY), NAME)

    done = commit(metastore, NAME, an_add("new"), a_remove("c"))

    assert done.version == 8
    assert {add.path for add in LogReader(metastore).live_files(NAME)} == {
        *("b", "twice", "both", "new")
    }


def test_the_history_of_versions_is_kept(metastore, root):
    source = a_log(
        root,
        [info(0, operation="CREATE TABLE", isBlindAppend=True), *START],
        [info(-50, isolationLevel="Serializable", readVersion=0, isBlindAppend=False), an_add()],
        [an_add("b")],
    )
    os.utime(root / "_delta_log" / f"{2:020}.json", (1_000, 1_000))

    import_table(metastore, source, NAME)

    newest, middle, oldest = LogReader(metastore).history(NAME)
    assert (oldest["operation"], oldest["is_blind_append"]) == ("CREATE TABLE", True)
    assert (middle["isolation_level"], middle["read_version"]) == ("Serializable", 0)
    times = [row["timestamp_ms"] for row in (oldest, middle, newest)]
    assert times == [NOW_MS, NOW_MS + 1, NOW_MS + 2]
    assert newest["committed_at_ms"] == 1_000_000
    assert {row["source"] for row in (oldest, middle, newest)} == {"import"}
    assert {row["mirror_status"] for row in (oldest, middle, newest)} == {"SUCCESS"}
    assert LogReader(metastore).table(NAME).mirrored_version == 2
    assert LogReader(metastore).version_at(NAME, NOW_MS + 1) == 1


ADD = encode([an_add("x.parquet", size=1, modification_time=1)]).rstrip()
ODD_FILES = {
    "no newline at the end": ADD,
    "blank lines": b"\n" + ADD + b"\n\n \n",
    "only a blank line": b"\n",
    "empty": b"",
    "carriage returns": ADD + b"\r\n",
    "byte order mark": b"\xef\xbb\xbf" + ADD + b"\n",
    "trailing garbage": ADD + b"x\n",
    "blanks": ADD.replace(b",", b", ") + b"\n",
    "another order": b'{"add":{"size":1,"path":"x.parquet","modificationTime":1,"dataChange":true,'
    b'"partitionValues":{}}}\n',
    "nulls": ADD[:-2] + b',"tags":null,"stats":null}}\n',
    "null siblings": b'{"txn":null,' + ADD[1:] + b"\n",
    "unknown members": ADD[:-2] + b',"later":{"a":[1,2]}}}\n',
    "unknown actions": b'{"later":{"a":1}}\n' + ADD + b"\n",
    "over several lines": b'{\n "add": {"path": "x.parquet", "partitionValues": {},\n'
    b' "size": 1, "modificationTime": 1, "dataChange": true}\n}\n' + ADD + b"\n",
    "commitInfo last": ADD + b'\n{"commitInfo":{"operation":"WRITE"}}\n',
    "commitInfo twice": b'{"commitInfo":{"a":1}}\n{"commitInfo":{"b":2}}\n' + ADD + b"\n",
    "long numbers": b'{"commitInfo":{"x":123456789012345678901234567890}}\n' + ADD + b"\n",
    "numbers as text": ADD.replace(b'"size":1', b'"size":"1"') + b"\n",
    "integral fractions": ADD.replace(b'"size":1', b'"size":1.0') + b"\n",
    "escapes of ASCII": ADD.replace(b"x.p", b"\\u0078.p") + b"\n",
    "V2-only actions": b'{"sidecar":{"path":"s","sizeInBytes":1,"modificationTime":1}}\n'
    + ADD
    + b"\n",
}


@pytest.mark.parametrize("data", ODD_FILES.values(), ids=ODD_FILES)
def test_odd_files_are_written_again_byte_for_byte(metastore, root, data):
    source = a_log(root, [info(0), *START], data, [info(2), an_add("y")])

    import_table(metastore, source, NAME)

    assert _written(metastore) == _files(root)
    assert state_in_sql(metastore, NAME) == state_of(root, 2)


@pytest.mark.parametrize("rows", [20_000, 4])
def test_a_vacuumed_log_begins_at_its_oldest_checkpoint(metastore, root, monkeypatch, rows):
    _small_batches(monkeypatch, rows)
    source = a_log(root, *HISTORY)
    expected = {version: state_of(root, version) for version in range(3, 8)}
    add_checkpoint(root, 3, actions_of(expected[3]))
    add_checkpoint(root, 5, actions_of(expected[5]))
    (root / "_delta_log" / f"{0:020}.json").unlink()
    (root / "_delta_log" / f"{2:020}.json").unlink()

    report = import_table(metastore, source, NAME)

    assert (report.first_version, report.floor_version, report.version) == (1, 3, 7)
    assert report.parity.checkpoint_version == 5
    assert _written(metastore) == _files(root)
    for version, state in expected.items():
        assert state_in_sql(metastore, NAME, version) == state
    with pytest.raises(VersionNotFoundError):
        LogReader(metastore).summary(NAME, 2)
    assert commit(metastore, NAME, an_add("new"), a_remove("c")).version == 8


def test_a_checkpoint_alone_is_a_table_without_commits(metastore, root):
    a_log(root, *HISTORY)
    state = state_of(root, 7)
    source = add_checkpoint(root, 7, actions_of(state)) and a_log(root)
    for path in (root / "_delta_log").glob("*.json"):
        path.unlink()

    report = import_table(metastore, source, NAME)

    assert (report.first_version, report.floor_version, report.version) == (8, 7, 7)
    assert state_in_sql(metastore, NAME) == state
    assert _written(metastore) == {}
    assert commit(metastore, NAME, an_add("new"), a_remove("c")).version == 8
    assert list(_written(metastore)) == [8]


def test_history_checkpoint_begins_at_the_newest_checkpoint(metastore, root):
    source = a_log(root, *HISTORY)
    for version in (2, 5):
        add_checkpoint(root, version, actions_of(state_of(root, version)))

    report = import_table(metastore, source, NAME, history="checkpoint", up_to_version=6)

    assert (report.first_version, report.floor_version, report.version) == (5, 5, 6)
    assert state_in_sql(metastore, NAME) == state_of(root, 6)
    assert sorted(_written(metastore)) == [5, 6]


def test_a_v2_checkpoint_with_sidecars_is_a_floor(metastore, root):
    a_log(root, *HISTORY)
    state = state_of(root, 4)
    actions = actions_of(state)
    files = [action for action in actions if isinstance(action, AddFile | RemoveFile)]
    others = [action for action in actions if action not in files]
    log = root / "_delta_log"
    (log / "_sidecars").mkdir()
    sidecars = []
    for number, part in enumerate((files[:2], files[2:])):
        (log / "_sidecars" / f"{number}.parquet").write_bytes(checkpoint_bytes(part))
        sidecars.append(
            Sidecar(path=f"{number}.parquet", size_in_bytes=1, modification_time=NOW_MS)
        )
    name = f"{4:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (log / name).write_bytes(encode([CheckpointMetadata(version=4), *others, *sidecars]))
    (log / f"{0:020}.json").unlink()

    report = import_table(metastore, a_log(root), NAME)

    assert report.floor_version == 4
    assert state_in_sql(metastore, NAME, 4) == state


def test_up_to_version_leaves_the_rest(metastore, root):
    report = import_table(metastore, a_log(root, *HISTORY), NAME, up_to_version=3)

    assert report.version == LogReader(metastore).table(NAME).head_version == 3
    assert state_in_sql(metastore, NAME) == state_of(root, 3)
    assert [finding.rule for finding in report.findings] == ["DL-FILE-03"]


def test_a_dry_run_writes_nothing_and_reports_the_same(metastore, root):
    source = a_log(root, *HISTORY)
    add_checkpoint(root, 5, actions_of(state_of(root, 5)))
    before = _rows_left(metastore)

    planned = import_table(metastore, source, NAME, dry_run=True)

    assert _rows_left(metastore) == before
    done = import_table(metastore, source, NAME)
    assert planned.is_dry_run
    for field in ("version", "commits", "adds", "removes", "exact_lines", "num_files", "findings"):
        assert getattr(planned, field) == getattr(done, field), field


def test_a_table_is_taken_over_once(metastore, root):
    source = a_log(root, *HISTORY)
    import_table(metastore, source, NAME)

    with pytest.raises(TableExistsError, match="taken") as again:
        import_table(metastore, source, NAME)
    with pytest.raises(TableExistsError, match=NAME):
        import_table(metastore, source, "sales.other")
    with pytest.raises(TableExistsError):
        import_table(metastore, source, NAME, dry_run=True)

    assert again.value.table == NAME


def test_progress_is_told(metastore, root):
    told = []

    import_table(metastore, a_log(root, *HISTORY), NAME, progress=told.append)

    assert [step.version for step in told if step.phase == "read"] == list(range(8))
    assert told[-1].phase == "prove"
    assert told[-1].bytes == told[-1].total_bytes == sum(map(len, _files(root).values()))


def test_a_log_moves_to_another_place_with_absolute_paths(metastore, root, tmp_path):
    vector = a_vector(storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^")
    source = a_log(
        root,
        [info(0), *START, an_add("p%20q/a", deletion_vector=vector), an_add("s3://b/c")],
        [info(1), a_remove("p%20q/a", deletion_vector=vector)],
    )
    target = f"file://{tmp_path}/elsewhere"

    report = import_table(metastore, source, NAME, mirror_to=target)

    reader = LogReader(metastore)
    record = reader.table(NAME)
    data = f"file://{root}"
    assert (record.location, record.data_location) == (target, data)
    assert record.mirrored_version == -1
    assert {row["mirror_status"] for row in reader.history(NAME)} == {"PENDING"}
    first, moved = reader.live_files(NAME, 0)
    assert [first.path, moved.path] == [f"{data}/p%20q/a", "s3://b/c"]
    assert first.deletion_vector == msgspec.structs.replace(
        vector,
        storage_type="p",
        path_or_inline_dv=f"{data}/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
    )
    assert [add.path for add in reader.live_files(NAME)] == ["s3://b/c"]
    assert (report.exact_lines, report.rewritten_lines) == (5, 2)
    assert [len(data.splitlines()) for data in _written(metastore).values()] == [5, 2]


def test_a_checkpoint_of_another_state_refuses_the_import(metastore, root):
    source = a_log(root, *HISTORY)
    state = state_of(root, 5)
    actions = [a for a in actions_of(state) if getattr(a, "path", "") != "c"]
    add_checkpoint(root, 5, actions)

    with pytest.raises(ImportRefusedError, match="different states") as refused:
        import_table(metastore, source, NAME)

    assert (refused.value.rule, refused.value.version) == ("DL-REC-10", 5)
    assert LogReader(metastore).tables() == []


def test_a_wrong_version_checksum_is_a_warning(metastore, root):
    source = a_log(root, *HISTORY)
    (root / "_delta_log" / f"{1:020}.crc").write_bytes(b'{"numFiles":99,"tableSizeBytes":1}')
    (root / "_delta_log" / f"{2:020}.crc").write_bytes(b"not JSON")
    (root / "_delta_log" / f"{3:020}.crc").write_bytes(b'{"numFiles":3}')

    report = import_table(metastore, source, NAME)

    wrong = [finding for finding in report.findings if finding.rule == "DL-CRC-02"]
    assert [(finding.version, finding.severity) for finding in wrong] == [
        (1, "warning"),
        (2, "warning"),
    ]
    assert report.parity.checksums == 3


def test_spellings_of_one_local_path_are_mentioned(metastore, root):
    source = a_log(root, [info(0), *START, an_add("/x/y")], [info(1), a_remove("file:///x/y")])

    report = import_table(metastore, source, NAME)

    assert "DL-REC-09" in {finding.rule for finding in report.findings}
    assert [add.path for add in LogReader(metastore).live_files(NAME)] == ["/x/y"]


def test_findings_of_one_rule_do_not_flood(metastore, root):
    commits = [encode([an_add(str(n))]).rstrip(b"\n") for n in range(50)]

    report = import_table(metastore, a_log(root, [info(0), *START], *commits), NAME)

    found = [finding for finding in report.findings if finding.rule == "DL-CMT-12"]
    assert len(found) == 4
    assert "47" in found[-1].message


_PATHS = st.sampled_from(["a", "b", "/c", "file:/c"])
_VECTORS = st.none() | st.sampled_from([a_vector(), a_vector(offset=2)])
_FILES = st.builds(
    lambda kind, path, vector, size: kind(path, deletion_vector=vector, size=size),
    st.sampled_from([an_add, a_remove]),
    _PATHS,
    _VECTORS,
    st.integers(0, 9),
)


@pytest.mark.parametrize("metastore_url", ["sqlite"], indirect=True)
@given(commits=st.lists(st.lists(_FILES, max_size=6), max_size=8), rows=st.integers(1, 9))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_history_in_any_batches_gives_the_state_of_a_replay(
    metastore, root, monkeypatch, commits, rows
):
    name = f"{NAME}_{len(LogReader(metastore).tables())}"
    _small_batches(monkeypatch, rows)
    place = root / name

    import_table(metastore, a_log(place, [*START], *commits), name)

    for version in range(len(commits) + 1):
        assert state_in_sql(metastore, name, version) == state_of(place, version)
