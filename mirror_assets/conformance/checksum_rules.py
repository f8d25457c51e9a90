"""Rules of version checksums (`<version>.crc`, DL-CRC)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mirror_assets.conformance.checks import CHECKSUM, Found
from mirror_assets.conformance.file_columns import Numbers
from mirror_assets.conformance.live_files import LiveFiles
from mirror_assets.conformance.views import Document
from mirror_assets.delta.actions import AddFile, DomainMetadata, Txn
from mirror_assets.delta.schema import short
from mirror_assets.delta.version_checksum import (
    TableSummary,
    UnusableChecksum,
    parse_version_checksum,
)
from mirror_assets.findings import Severity

_REQUIRED: Final = ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol")
#: absent in files of Delta before 3
_LATER: Final = ("metadata", "protocol")
#: the least number of deleted rows of each class
_DELETED: Final = (0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 2**31 - 1)


@CHECKSUM.checks("DL-CRC-01")
def a_checksum_is_complete(crc: Document) -> Iterator[Found]:
    summary = parse_version_checksum(crc.data)
    if isinstance(summary, UnusableChecksum):
        yield crc.found("DL-CRC-01", f"the file cannot be used: {summary.reason}")
        return
    document = json.loads(crc.data)
    for name in _REQUIRED:
        if document.get(name) is None:
            yield crc.found("DL-CRC-01", f"{name} is missing")
    for name in _LATER:
        if document.get(name) is None:
            message = f"{name} is missing, as in files of old writers"
            yield crc.found("DL-CRC-01", message, at_most=Severity.WARNING)
    for name, told in (
        ("numMetadata", summary.num_metadata),
        ("numProtocol", summary.num_protocol),
    ):
        if told not in (None, 1):
            yield crc.found("DL-CRC-01", f"{name} is {told}, not 1")


@CHECKSUM.checks("DL-CRC-02")
def a_checksum_tells_the_state(crc: Document) -> Iterator[Found]:
    summary, history = _summary(crc), crc.history
    if summary is None or history is None or history.live is None:
        return
    live = history.live
    for name, told, counted in (
        ("numFiles", summary.num_files, live.count),
        ("tableSizeBytes", summary.table_size_bytes, live.size_bytes),
        ("numDeletedRecords", summary.num_deleted_records, live.deleted_records),
        ("numDeletionVectors", summary.num_deletion_vectors, live.vectors),
    ):
        if told is not None and told != counted:
            message = f"{name} is {told}, the commits give {counted}"
            yield crc.found("DL-CRC-02", message)
    yield from _compare_files(crc, live, summary.all_files)
    yield from _compare_actions(crc, summary)


@CHECKSUM.checks("DL-CRC-03")
def a_checksum_repeats_the_commits_time(crc: Document) -> Iterator[Found]:
    summary, history = _summary(crc), crc.history
    if summary is None or history is None or not history.is_known:
        return
    active = history.is_active("inCommitTimestamp", "delta.enableInCommitTimestamps")
    told = summary.in_commit_timestamp
    if active and told is None:
        yield crc.found("DL-CRC-03", "in-commit timestamps are on, but the file has none")
    elif active and told != history.in_commit_ms:
        message = f"the in-commit timestamp is {told}, the commit's {history.in_commit_ms}"
        yield crc.found("DL-CRC-03", message)
    elif not active and told is not None:
        message = "it has an in-commit timestamp, though they are off"
        yield crc.found("DL-CRC-03", message, at_most=Severity.WARNING)


@CHECKSUM.checks("DL-CRC-04")
def a_histogram_of_sizes_fits(crc: Document) -> Iterator[Found]:
    summary = _summary(crc)
    if summary is None or summary.file_size_histogram is None:
        return
    found = summary.file_size_histogram
    lengths = {len(found.sorted_bin_boundaries), len(found.file_counts), len(found.total_bytes)}
    if len(lengths) != 1:
        yield crc.found("DL-CRC-04", "the lists of the histogram have several lengths")
        return
    if found.sorted_bin_boundaries[:1] != [0] or found.sorted_bin_boundaries != sorted(
        found.sorted_bin_boundaries
    ):
        yield crc.found("DL-CRC-04", "the bins of the histogram do not ascend from 0")
        return
    live = crc.history.live if crc.history else None
    if live is None:
        return
    sizes = live.files().size
    bins = _classes(sizes, found.sorted_bin_boundaries)
    totals = np.zeros(len(found.total_bytes), np.int64)
    np.add.at(totals, bins, sizes)
    if np.bincount(bins, minlength=len(totals)).tolist() != found.file_counts:
        yield crc.found("DL-CRC-02", "the histogram counts other files than the commits give")
    elif totals.tolist() != found.total_bytes:
        yield crc.found("DL-CRC-02", "the histogram sums other bytes than the commits give")


@CHECKSUM.checks("DL-CRC-05")
def a_histogram_of_deletions_fits(crc: Document) -> Iterator[Found]:
    summary = _summary(crc)
    histogram = summary.deleted_record_counts_histogram if summary else None
    if histogram is None:
        return
    counts = histogram.deleted_record_counts
    if len(counts) != len(_DELETED):
        yield crc.found("DL-CRC-05", f"the histogram of deleted rows has {len(counts)} bins")
        return
    live = crc.history.live if crc.history else None
    if live is None:
        return
    counted = np.bincount(_classes(live.files().deleted, _DELETED), minlength=len(_DELETED))
    if counted.tolist() != counts:
        message = f"the histogram of deleted rows is {counts}, the commits give {counted.tolist()}"
        yield crc.found("DL-CRC-05", message)


def _classes(numbers: Numbers, bounds: Sequence[int]) -> npt.NDArray[np.intp]:
    """The class of each number; negative ones are found in their commits."""
    return np.searchsorted(np.array(bounds), np.maximum(numbers, 0), "right") - 1


def _compare_files(crc: Document, live: LiveFiles, told: list[AddFile] | None) -> Iterator[Found]:
    if told is None:
        return
    compared = live.files().against(LiveFiles.of(told).files())
    differ = np.count_nonzero(compared.here.fingerprint != compared.there.fingerprint)
    for count, what in (
        (len(compared.only_here), "live files are not in allFiles"),
        (len(compared.only_there), "files of allFiles are not live"),
        (differ, "files have other members in allFiles"),
    ):
        if count:
            yield crc.found("DL-CRC-02", f"{count} {what}")


def _compare_actions(crc: Document, summary: TableSummary) -> Iterator[Found]:
    history = crc.history
    if history is None:
        return
    if summary.protocol and history.protocol and _differs(summary.protocol, history.protocol):
        yield crc.found("DL-CRC-02", "the protocol is not that of the commits")
    told, known = summary.metadata, history.metadata
    if (
        told
        and known
        and (told.id, told.schema_string, told.configuration)
        != (
            known.id,
            known.schema_string,
            known.configuration,
        )
    ):
        yield crc.found("DL-CRC-02", "the metadata is not that of the commits")
    yield from _compare_txns(crc, summary.set_transactions, history.txns)
    yield from _compare_domains(crc, summary.domain_metadata, history.domains)


def _compare_txns(crc: Document, told: list[Txn] | None, known: dict[str, Txn]) -> Iterator[Found]:
    if told is None:
        return
    claimed = {txn.app_id: txn.version for txn in told}
    for app in claimed.keys() | known.keys():
        if app not in claimed and _may_expire(crc):
            continue
        if app not in claimed or app not in known or claimed[app] != known[app].version:
            message = f"the txn of {short(app)} is not that of the commits"
            yield crc.found("DL-CRC-02", message)


def _compare_domains(
    crc: Document, told: list[DomainMetadata] | None, known: dict[str, DomainMetadata]
) -> Iterator[Found]:
    if told is None:
        return
    claimed = {domain.domain: domain.configuration for domain in told}
    expected = {name: domain.configuration for name, domain in known.items()}
    for name in claimed.keys() | expected.keys():
        if claimed.get(name) != expected.get(name):
            message = f"the domain {short(name)} is not that of the commits"
            yield crc.found("DL-CRC-02", message)


def _may_expire(crc: Document) -> bool:
    properties = crc.history.configuration if crc.history else {}
    return "delta.setTransactionRetentionDuration" in properties


def _differs(one: object, other: object) -> bool:
    members = ("min_reader_version", "min_writer_version")
    lists = ("reader_features", "writer_features")
    return any(getattr(one, m) != getattr(other, m) for m in members) or any(
        set(getattr(one, m) or ()) != set(getattr(other, m) or ()) for m in lists
    )


def _summary(crc: Document) -> TableSummary | None:
    summary = parse_version_checksum(crc.data)
    return None if isinstance(summary, UnusableChecksum) else summary
