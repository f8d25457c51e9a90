"""Damage to the pointer, version checksums and compactions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mirror_assets.delta.last_checkpoint import checksums
from mirror_assets.delta.log_paths import ClassicCheckpoint, VersionChecksum
from mirror_assets_tests.conformance.damage.kinds import (
    DAMAGES,
    POINTER,
    damage,
    has_history,
    setting,
)
from mirror_assets_tests.conformance.logs import CHECKPOINT, HEAD, MemoryLog, Row, encoded


def in_pointer(rule: str, name: str, /, **members: Any) -> None:
    DAMAGES[name] = (rule, lambda log: log.edit_json(POINTER, setting(**members)))


def in_checksum(rule: str, name: str, /, **members: Any) -> None:
    file = VersionChecksum(HEAD).name
    DAMAGES[name] = (rule, lambda log: log.edit_json(file, setting(**members)))


@damage("DL-LCP-10")
def two_orders_give_two_checksums(log: MemoryLog) -> bool:
    def change(pointer: Row) -> None:
        pointer.pop("checksum", None)
        pointer["tags"] = {}
        pointer["checkpointSchema"] = {"fields": [str(number) for number in range(12)]}
        pointer["checksum"] = checksums(json.dumps(pointer).encode()).protocol

    return log.edit_json(POINTER, change)


in_pointer("DL-LCP-02", "the_pointer_names_the_future", version=99)
in_pointer("DL-LCP-01", "the_pointer_has_no_version", version=None)
in_pointer("DL-LCP-03", "the_pointer_counts_wrong", size=123_456)
in_pointer("DL-LCP-05", "the_pointer_sums_wrong", sizeInBytes=5)
in_pointer("DL-LCP-05", "the_pointer_counts_other_files", numOfAddFiles=99)
in_pointer("DL-LCP-09", "the_checksum_of_the_pointer_is_wrong", checksum="0" * 32)
in_pointer("DL-LCP-11", "the_schema_in_the_pointer_is_a_text", checkpointSchema="x")


@damage("DL-LCP-04")
def the_pointer_tells_of_one_part(log: MemoryLog) -> bool:
    return log.edit_json(POINTER, setting(parts=1))


@damage("DL-LCP-02")
def the_pointer_is_empty(log: MemoryLog) -> bool:
    return POINTER in log.files and log.files.update({POINTER: b""}) is None


@damage("DL-LCP-02")
def the_pointer_of_a_cleaned_log_is_missing(log: MemoryLog) -> bool:
    return not has_history(log) and log.files.pop(POINTER, None) is not None


@damage("DL-LCP-07")
def the_pointer_names_a_member_twice(log: MemoryLog) -> bool:
    if POINTER in log.files:
        log.files[POINTER] = log.files[POINTER].replace(b'{"version"', b'{"version":1,"version"')
    return POINTER in log.files


@damage("DL-LCP-06")
def the_pointer_lags_behind(log: MemoryLog) -> bool:
    name = ClassicCheckpoint(CHECKPOINT).name
    if name not in log.files:
        return False
    log.files[ClassicCheckpoint(HEAD).name] = log.files[name]
    return True


@damage("DL-LCP-12")
def the_pointer_does_not_name_a_v2_file(log: MemoryLog) -> bool:
    return b"v2Checkpoint" in log.files.get(POINTER, b"") and log.edit_json(
        POINTER, setting(v2Checkpoint=None)
    )


# version checksums, compactions

in_checksum("DL-CRC-02", "a_checksum_counts_wrong", numFiles=77)
in_checksum("DL-CRC-02", "a_checksum_sums_wrong", tableSizeBytes=1)
in_checksum("DL-CRC-01", "a_checksum_has_no_count", numFiles=None)
in_checksum("DL-CRC-01", "a_checksum_counts_two_protocols", numProtocol=2)
in_checksum(
    "DL-CRC-02",
    "a_checksum_tells_another_transaction",
    setTransactions=[{"appId": "x", "version": 1}],
)
in_checksum("DL-CRC-02", "a_checksum_forgets_the_transactions", setTransactions=[])
in_checksum("DL-CRC-02", "a_checksum_lists_no_files", allFiles=[])
in_checksum("DL-CRC-03", "a_checksum_tells_another_time", inCommitTimestampOpt=5)
in_checksum(
    "DL-CRC-04",
    "a_histogram_does_not_begin_at_0",
    fileSizeHistogram={"sortedBinBoundaries": [5], "fileCounts": [1], "totalBytes": [1]},
)
in_checksum(
    "DL-CRC-05",
    "a_histogram_of_deletions_has_two_bins",
    deletedRecordCountsHistogramOpt={"deletedRecordCounts": [1, 2]},
)
in_checksum(
    "DL-CRC-05",
    "a_histogram_of_deletions_counts_wrong",
    deletedRecordCountsHistogramOpt={"deletedRecordCounts": [99] + [0] * 9},
)


@damage("DL-CRC-02")
def a_checksum_forgets_a_domain(log: MemoryLog) -> bool:
    return b'"domain"' in log.files.get(VersionChecksum(HEAD).name, b"") and log.edit_json(
        VersionChecksum(HEAD).name, setting(domainMetadata=[])
    )


@damage("DL-CRC-02")
def a_histogram_sums_wrong(log: MemoryLog) -> bool:
    def change(document: Row) -> None:
        document["fileSizeHistogram"]["totalBytes"] = [0, 1]

    return log.edit_json(VersionChecksum(HEAD).name, change)


@damage("DL-CRC-01")
def a_checksum_is_not_json(log: MemoryLog) -> bool:
    name = VersionChecksum(HEAD).name
    return name in log.files and log.files.update({name: b"{"}) is None


@damage("DL-CMPT-01")
def a_compaction_lacks_an_action(log: MemoryLog) -> bool:
    return _compaction(log, lambda lines: lines.pop())


@damage("DL-CMPT-01")
def a_compaction_says_too_much(log: MemoryLog) -> bool:
    return _compaction(log, lambda lines: lines.append({"txn": {"appId": "x", "version": 1}}))


@damage("DL-CMPT-01")
def a_compaction_has_an_old_size(log: MemoryLog) -> bool:
    def change(lines: list[Row]) -> None:
        next(line["add"] for line in lines if "add" in line)["size"] = 1

    return _compaction(log, change)


@damage("DL-CMPT-01")
def a_compaction_has_an_old_transaction(log: MemoryLog) -> bool:
    def change(lines: list[Row]) -> None:
        next(line["txn"] for line in lines if "txn" in line)["version"] = 1

    return _compaction(log, change)


@damage("DL-CMPT-02")
def a_compaction_holds_provenance(log: MemoryLog) -> bool:
    return _compaction(log, lambda lines: lines.append({"commitInfo": {}}))


def _compaction(log: MemoryLog, change: Callable[[list[Row]], object]) -> bool:
    name = next((name for name in log.files if name.endswith(".compacted.json")), None)
    if name is None:
        return False
    lines = [json.loads(line) for line in log.files[name].splitlines()]
    change(lines)
    log.files[name] = encoded(lines)
    return True
