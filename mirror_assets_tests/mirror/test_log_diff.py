"""SQL beside the log, action by action."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mirror_assets.errors import VersionNotFoundError
from mirror_assets.findings import Finding
from mirror_assets.mirror.log_diff import diff_commit, diff_log
from mirror_assets_tests.builders import commit
from mirror_assets_tests.mirror.published import commit_file, publish

if TYPE_CHECKING:
    from mirror_assets_tests.mirror.lake import Lake


def lines(*actions: Any) -> bytes:
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def messages(in_sql: bytes, in_log: bytes) -> list[str]:
    return [finding.message for finding in diff_commit(in_sql, in_log)]


def add(path: str, **members: Any) -> dict[str, Any]:
    return {"add": {"path": path, "size": 1} | members}


def diff(lake: Lake, version: int | None = None) -> list[Finding]:
    return diff_log(lake.metastore, lake.store, lake.name, version)


def test_equal_commits_do_not_differ() -> None:
    assert messages(lines(add("a")), lines(add("a"))) == []


def test_actions_of_one_side_are_told_with_what_they_are_about() -> None:
    txn = {"txn": {"appId": "app", "version": 1}}
    domain = {"domainMetadata": {"domain": "d", "configuration": "", "removed": False}}
    in_sql, in_log = lines(add("a"), add("b"), txn), lines(add("a"), domain, {"cdc": {"path": "c"}})
    assert messages(in_sql, in_log) == [
        "add b is only in SQL",
        "txn app is only in SQL",
        "domainMetadata d is only in the log",
        "cdc c is only in the log",
    ]


def test_members_that_changed_are_told_with_both_values() -> None:
    in_sql, in_log = lines(add("a", stats="x")), lines(add("a", size=2, tags={"k": "v"}))
    assert messages(in_sql, in_log) == [
        "add a: size is 1 in SQL, 2 in the log",
        "add a: stats is x in SQL, absent in the log",
        'add a: tags is absent in SQL, {"k":"v"} in the log',
    ]


def test_a_file_with_another_deletion_vector_is_another_file() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "sizeInBytes": 1, "cardinality": 1}
    assert messages(lines(add("a")), lines(add("a", deletionVector=vector))) == [
        "add a is only in SQL",
        "add a deletion vector ab is only in the log",
    ]


def test_other_bytes_of_the_same_actions_are_no_error() -> None:
    (spaced,) = diff_commit(b'{"add":{"path":"a"}}\n', b'{"add": {"path": "a"}}\n')
    assert spaced.severity == "warning"
    (ended,) = diff_commit(b'{"add":{"path":"a"}}\n', b'{"add":{"path":"a"}}')
    assert ended.severity == "warning"


@pytest.mark.parametrize("line", [b"\xff\xfe", b"{", b"[1]", b"7", b'{"a":1,"b":2}', b'{"add":3}'])
def test_what_is_no_action_is_told_as_it_is(line: bytes) -> None:
    (finding,) = diff_commit(b"", line)
    assert finding.message.endswith("is only in the log")


def test_the_same_action_twice_is_one_too_many() -> None:
    assert messages(lines(add("a")), lines(add("a"), add("a"))) == ["add a is only in the log"]


def test_the_first_version_that_differs_is_shown(lake: Lake) -> None:
    publish(lake, 5, checkpoints=(2,))
    assert diff(lake) == []
    for version in (3, 5):
        file = commit_file(lake, version)
        file.write_bytes(file.read_bytes().replace(b'"dataChange":true', b'"dataChange":false'))
    (finding,) = diff(lake)
    assert finding.version == 3
    assert finding.message.endswith("dataChange is true in SQL, false in the log")
    assert [found.version for found in diff(lake, 5)] == [5]
    assert diff(lake, 4) == []


def test_missing_foreign_and_waiting_versions_are_told_apart(lake: Lake) -> None:
    publish(lake, 3)
    commit_file(lake, 2).unlink()
    assert [(f.rule, f.version) for f in diff(lake)] == [("DL-FILE-03", 2)]
    commit_file(lake, 4).write_bytes(lines(add("foreign")))
    (foreign,) = diff(lake, 4)
    assert foreign.message == "add foreign is only in the log"
    commit_file(lake, 4).unlink()
    commit(lake.metastore, lake.name, lake.file(pa.table({"id": [1]})))
    assert [found.severity for found in diff(lake, 4)] == ["info"]
    with pytest.raises(VersionNotFoundError):
        diff(lake, 9)


def test_a_flood_of_differences_is_counted(lake: Lake) -> None:
    publish(lake, 1)
    commit_file(lake, 1).write_bytes(lines(*(add(f"f{number}") for number in range(300))))
    found = diff(lake, 1)
    assert len(found) == 101
    assert "more differences" in found[-1].message
