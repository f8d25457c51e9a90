"""Table properties that decide about checkpoints and about how long things are kept.

The names and defaults of retention are conventions of Delta Spark, not of the protocol (section 19
of the rules). What a property says in words that nobody understands keeps more, never less.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_assets.delta.actions import MetaData, TableProtocol

DAY_MS: Final = 24 * 60 * 60 * 1000

_TOMBSTONES: Final = "delta.deletedFileRetentionDuration"
_TXNS: Final = "delta.setTransactionRetentionDuration"
_CODEC: Final = "delta.parquet.compression.codec"
_STATS_AS_JSON: Final = "delta.checkpoint.writeStatsAsJson"
_STATS_AS_STRUCT: Final = "delta.checkpoint.writeStatsAsStruct"
_GUARDED: Final = "delta.requireCheckpointProtectionBeforeVersion"
_DEFAULT_TOMBSTONES_MS: Final = 7 * DAY_MS
#: the protocol asks writers from this version on to honour where statistics go (DL-CP-09)
_WRITER_WITH_STATS_CHOICE: Final = 3

_MICROSECONDS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60 * 1_000_000,
    "hour": 3_600 * 1_000_000,
    "day": 86_400 * 1_000_000,
    "week": 7 * 86_400 * 1_000_000,
}
_TERM: Final = re.compile(r"\s*([+-]?[0-9]{1,15})\s+([a-z]+?)s?(?=\s|$)")
#: codecs that every reader tried takes (section 16): lz4_raw breaks Trino, lzo nobody writes
_CODECS: Final = {
    "uncompressed": "none",
    "none": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
}
_DEFAULT_CODEC: Final = "zstd"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """What a table wants its checkpoints to be like."""

    #: in pyarrow's words
    codec: str
    stats_as_json: bool
    stats_as_struct: bool


def checkpoint_options(protocol: TableProtocol, metadata: MetaData) -> CheckpointOptions:
    """The table's own choice, or the protocol's default.

    Statistics stand somewhere whatever the properties say: files without any are invisible to
    some readers (DL-CP-14).
    """
    properties = metadata.configuration
    codec = _CODECS.get(properties.get(_CODEC, _DEFAULT_CODEC).lower(), _DEFAULT_CODEC)
    if protocol.min_writer_version < _WRITER_WITH_STATS_CHOICE:
        return CheckpointOptions(codec=codec, stats_as_json=True, stats_as_struct=False)
    as_json = _is_true(properties, _STATS_AS_JSON, default=True)
    as_struct = _is_true(properties, _STATS_AS_STRUCT, default=False)
    return CheckpointOptions(
        codec=codec, stats_as_json=as_json, stats_as_struct=as_struct or not as_json
    )


def tombstone_cutoff_ms(properties: Mapping[str, str], now_ms: int) -> int:
    """Tombstones stand while their deletion is later than this (DL-REC-06)."""
    text = properties.get(_TOMBSTONES)
    kept = _DEFAULT_TOMBSTONES_MS if text is None else interval_ms(text)
    return -1 if kept is None else now_ms - kept


def txn_cutoff_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Transactions updated at or before this have expired; None if they never do (DL-TXN-03)."""
    text = properties.get(_TXNS)
    kept = None if text is None else interval_ms(text)
    return None if kept is None else now_ms - kept


def guarded_version(protocol: TableProtocol, metadata: MetaData) -> int | None:
    """Below this version `checkpointProtection` allows no new checkpoint; None without it."""
    if "checkpointProtection" not in (protocol.writer_features or ()):
        return None
    text = metadata.configuration.get(_GUARDED, "")
    return int(text) if text.isdecimal() else None


def interval_ms(text: str) -> int | None:
    """The length of an interval as Delta writes it, such as `interval 7 days`.

    None for what is not one; months and years have no fixed length.
    """
    rest = text.strip().lower().removeprefix("interval ")
    total = 0
    while rest:
        term = _TERM.match(rest)
        length = _MICROSECONDS.get(term[2]) if term else None
        if term is None or length is None:
            return None
        total += int(term[1]) * length
        rest = rest[term.end() :]
    return total // 1000 if text.strip() else None


def _is_true(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = properties.get(name, "").lower()
    return text == "true" if text in ("true", "false") else default
