"""Table properties: what they say, and what is done where they cannot be understood."""

from __future__ import annotations

import pytest

from mirror_assets.delta.actions import TableProtocol
from mirror_assets.delta.table_properties import (
    DAY_MS,
    checkpoint_options,
    interval_ms,
    tombstone_cutoff_ms,
    txn_cutoff_ms,
)
from mirror_assets_tests.delta.samples import a_metadata


@pytest.mark.parametrize(
    ("text", "codec"),
    [("SNAPPY", "snappy"), ("uncompressed", "none"), ("lz4_raw", "zstd"), ("odd", "zstd")],
)
def test_the_codec_is_the_tables_own_if_all_readers_know_it(text: str, codec: str) -> None:
    plain = TableProtocol(min_reader_version=1, min_writer_version=2)
    metadata = a_metadata(configuration={"delta.parquet.compression.codec": text})

    assert checkpoint_options(plain, metadata).codec == codec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 7 days", 7 * DAY_MS),
        ("interval 168 hours", 7 * DAY_MS),
        ("INTERVAL 1 WEEK", 7 * DAY_MS),
        ("1 day 12 hours", 36 * 3_600_000),
        ("interval 1500 microseconds", 1),
        ("interval 1 month", None),
        ("interval", None),
        ("", None),
        ("7", None),
    ],
)
def test_intervals_have_a_length_or_none(text: str, expected: int | None) -> None:
    assert interval_ms(text) == expected


def test_a_retention_that_nobody_understands_keeps_everything() -> None:
    odd = {
        "delta.deletedFileRetentionDuration": "a while",
        "delta.setTransactionRetentionDuration": "a while",
    }

    assert tombstone_cutoff_ms(odd, DAY_MS) < 0
    assert txn_cutoff_ms(odd, DAY_MS) is None
    assert tombstone_cutoff_ms({}, 8 * DAY_MS) == DAY_MS
