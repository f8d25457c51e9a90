from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror_assets.delta.actions import AddFile, RemoveFile, TableProtocol, Txn
from mirror_assets.delta.commit_file import decode
from mirror_assets.delta.log_paths import VersionChecksum as ChecksumName
from mirror_assets.delta.log_paths import parse_log_path
from mirror_assets.delta.version_checksum import (
    TableSummary,
    UnusableChecksum,
    parse_version_checksum,
    version_checksum_bytes,
)
from mirror_assets_tests.delta.samples import a_domain, a_metadata, a_protocol, an_add

if TYPE_CHECKING:
    from pathlib import Path

HISTOGRAM = {"sortedBinBoundaries": [0, 8], "fileCounts": [1, 0], "totalBytes": [3, 0]}


def parse(document: object) -> TableSummary:
    summary = parse_version_checksum(json.dumps(document).encode())
    assert isinstance(summary, TableSummary)
    return summary


def test_a_full_checksum_is_read_as_actions_and_counts() -> None:
    summary = parse(
        {
            "txnId": "t",
            "tableSizeBytes": 3,
            "numFiles": 1,
            "numMetadata": 1,
            "numProtocol": 1,
            "inCommitTimestampOpt": 5,
            "setTransactions": [{"appId": "a", "version": 2}],
            "domainMetadata": [{"domain": "d", "configuration": "{}", "removed": False}],
            "metadata": {
                "id": "i",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": "{}",
                "partitionColumns": [],
                "configuration": {},
            },
            "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
            "fileSizeHistogram": HISTOGRAM,
            "allFiles": [
                {
                    "path": "p",
                    "partitionValues": {},
                    "size": 3,
                    "modificationTime": 1,
                    "dataChange": False,
                }
            ],
        }
    )

    assert (summary.num_files, summary.table_size_bytes) == (1, 3)
    assert summary.protocol == TableProtocol(min_reader_version=1, min_writer_version=2)
    assert summary.metadata is not None
    assert summary.metadata.id == "i"
    assert [file.path for file in summary.all_files or []] == ["p"]
    assert [txn.app_id for txn in summary.set_transactions or []] == ["a"]
    assert [domain.domain for domain in summary.domain_metadata or []] == ["d"]


@pytest.mark.parametrize(
    ("document", "member", "value"),
    [
        ({"inCommitTimestampOpt": 5}, "in_commit_timestamp", 5),
        ({"numDeletedRecordsOpt": 5}, "num_deleted_records", 5),
        ({"numDeletionVectorsOpt": 5}, "num_deletion_vectors", 5),
        ({"numTransactions": 5}, "num_transactions", 5),
        ({"numFiles": None}, "num_files", None),
        ({"unheardOf": 1}, "num_files", None),
    ],
)
def test_old_names_and_missing_members_are_understood(
    document: dict[str, Any], member: str, value: int | None
) -> None:
    assert getattr(parse(document), member) == value


def test_the_old_name_of_the_histogram_means_the_same() -> None:
    old = parse({"histogramOpt": HISTOGRAM})

    assert old == parse({"fileSizeHistogram": HISTOGRAM})
    assert old.file_size_histogram is not None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"numFiles":"many"}', b"\xff", b"[" * 100_000]
)
def test_a_broken_checksum_is_unusable_and_says_why(data: bytes) -> None:
    summary = parse_version_checksum(data)

    assert isinstance(summary, UnusableChecksum)
    assert summary.reason


SUMMARY = TableSummary(
    txn_id="t",
    table_size_bytes=3,
    num_files=1,
    num_metadata=1,
    num_protocol=1,
    in_commit_timestamp=5,
    set_transactions=[Txn(app_id="ü", version=2)],
    domain_metadata=[a_domain(configuration='{"a":1}')],
    metadata=a_metadata(name='"quoted"'),
    protocol=a_protocol("domainMetadata"),
    all_files=[an_add()],
)


def test_what_is_written_is_read_back() -> None:
    assert parse(json.loads(version_checksum_bytes(SUMMARY))) == SUMMARY


def test_members_stand_in_delta_sparks_order_and_absent_ones_are_left_out() -> None:
    data = version_checksum_bytes(SUMMARY)

    assert list(json.loads(data)) == [
        *("txnId", "tableSizeBytes", "numFiles", "numMetadata", "numProtocol"),
        *("inCommitTimestampOpt", "setTransactions", "domainMetadata", "metadata", "protocol"),
        "allFiles",
    ]
    assert data.endswith(b"}\n")
    assert b'"setTransactions":[{"appId":"\xc3\xbc","version":2}]' in data
    assert b'"metadata":{"id":' in data


def test_a_checksum_without_what_the_protocol_requires_is_not_written() -> None:
    with pytest.raises(ValueError, match="metadata, num_files"):
        version_checksum_bytes(TableSummary(table_size_bytes=1, num_metadata=1, num_protocol=1))


@pytest.mark.corpora
def test_every_checksum_of_the_corpora_is_read_and_agrees_with_a_replay(corpora: Path) -> None:
    compared = 0
    for file in sorted(corpora.rglob("_delta_log/*.crc")):
        name = parse_log_path(file.name)
        if not isinstance(name, ChecksumName):
            continue
        summary = parse_version_checksum(file.read_bytes())
        assert isinstance(summary, TableSummary), (file, summary)
        commits = [file.with_name(f"{v:020d}.json") for v in range(name.version + 1)]
        if all(commit.exists() for commit in commits):
            compared += 1
            assert replayed(commits) == {
                "files": summary.num_files,
                "bytes": summary.table_size_bytes,
            }, file
    assert compared


def replayed(commits: list[Path]) -> dict[str, int]:
    sizes: dict[tuple[str, str], int] = {}
    for commit in commits:
        for action in decode(commit.read_bytes()).actions:
            if isinstance(action, AddFile):
                sizes[action.path, action.dv_id] = action.size
            elif isinstance(action, RemoveFile):
                sizes.pop((action.path, action.dv_id), None)
    return {"files": len(sizes), "bytes": sum(sizes.values())}
