"""Independent readers behind one port, and their verdict on a table.

A reader is asked for versions of a table and tells what it sees: rows, a digest of their values,
and live files. Readers must agree with what the log says and with each other. One that refuses, or
differs, where that is a known limit of it, is excused by name and date; anything else is an error.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol

import pyarrow as pa

from mirror_assets.conformance.report import Growth, ReaderVerdict
from mirror_assets.delta.locations import Location
from mirror_assets.findings import Finding, Severity
from mirror_assets.storage.options import StoreOptions

_RULE: Final = "DL-REC-10"
_WORD: Final = 2**128
#: how much of a reader's own message is told
_SHOWN: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a reader sees of a version."""

    rows: int
    #: of all values, whatever the order of rows and columns
    digest: str
    #: live files; None where the reader does not tell
    files: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a reader does not read a version."""

    reason: str


class Reader(Protocol):
    """One program that reads Delta tables and knows nothing of us."""

    @property
    def name(self) -> str:
        """As in `--readers`."""

    def read(self, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
        """What it sees of a version. What it raises is a refusal, whatever its type."""

    def close(self) -> None:
        """Let go of what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A known limit of a reader: what it does to which tables, and when it was seen."""

    reader: str
    #: tables with this feature
    feature: str
    says: str
    noted: str


#: each was seen with the release that the project is locked to
LIMITS: Final = (
    Limit(
        reader="deltalake",
        feature="typeWidening",
        says="deltalake 1.6.6 refuses tables with widened types",
        noted="2026-11-18",
    ),
    Limit(
        reader="duckdb",
        feature="variantType",
        says="DuckDB 1.5.5 has no variant type for Delta tables",
        noted="2026-11-18",
    ),
    Limit(
        reader="duckdb",
        feature="columnMapping",
        says="DuckDB 1.5.5 reads partition values of mapped columns as null",
        noted="2026-11-18",
    ),
    Limit(
        reader="*",
        feature="catalogManaged",
        says="readers by path refuse catalog-managed tables, as the protocol tells them to",
        noted="2026-11-18",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the log itself tells of a version: the truth that readers are held to."""

    version: int
    files: int
    #: None where statistics do not count all rows
    rows: int | None = None


def expected_of(growth: Sequence[Growth], count: int = 3) -> list[Expected]:
    """What readers are asked for: the newest version, and some before it."""
    return [
        Expected(version=point.version, files=point.files, rows=point.rows)
        for point in _sampled(growth, count)
    ]


def ask_readers(
    readers: Sequence[Reader],
    place: Location,
    expected: Sequence[Expected],
    *,
    features: frozenset[str],
    options: StoreOptions | None = None,
) -> tuple[ReaderVerdict, ...]:
    """Ask each reader for each version, and judge the answers by the log and by each other."""
    verdicts: list[ReaderVerdict] = []
    for wanted in expected:
        answers = {
            reader.name: _asked(reader, place, wanted.version, options or StoreOptions())
            for reader in readers
        }
        verdicts += _judged(answers, wanted, features)
    return tuple(verdicts)


def findings_of(verdicts: Iterable[ReaderVerdict], table: str | None) -> list[Finding]:
    """A difference is an error, and so is a refusal that no known limit excuses."""
    severities = {"differs": Severity.ERROR, "refuses": Severity.ERROR, "limit": Severity.INFO}
    return [
        Finding(
            rule=_RULE,
            severity=severities[verdict.outcome],
            message=f"{verdict.reader}: {verdict.detail}",
            remedy="compare with the other readers; a refusal names what the reader lacks",
            table=table,
            version=verdict.version,
        )
        for verdict in verdicts
        if verdict.outcome in severities
    ]


def digest_of(batches: Iterable[pa.RecordBatch]) -> tuple[int, str]:
    """Rows, and a digest of their values that no order of rows or columns changes."""
    rows, total = 0, 0
    for batch in batches:
        names = sorted(batch.schema.names)
        columns = [batch.column(name).to_pylist() for name in names]
        rows += batch.num_rows
        for values in zip(*columns, strict=True):
            text = "\x1f".join(map(_text, values))
            total += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest())
    return rows, f"{total % _WORD:032x}"


def _sampled(growth: Sequence[Growth], count: int) -> list[Growth]:
    if not growth:
        return []
    last = len(growth) - 1
    places = {last, *(last * n // max(1, count - 1) for n in range(count - 1))}
    return [growth[place] for place in sorted(places)]


def _asked(reader: Reader, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
    try:
        return reader.read(place, version, options)
    except Exception as exc:  # noqa: BLE001 - other people's programs: each raises its own
        return Refused(f"{type(exc).__name__}: {exc}".partition("\n")[0][:_SHOWN])


def _judged(
    answers: Mapping[str, Seen | Refused], wanted: Expected, features: frozenset[str]
) -> Iterator[ReaderVerdict]:
    digests = [answer.digest for answer in answers.values() if isinstance(answer, Seen)]
    usual = max(set(digests), key=digests.count) if digests else ""
    for name, answer in answers.items():
        limit = next((x for x in LIMITS if x.reader in (name, "*") and x.feature in features), None)
        if isinstance(answer, Refused):
            outcome, detail = "refuses", answer.reason
        else:
            wrong = list(_differences(answer, wanted, usual))
            outcome = "differs" if wrong else "agrees"
            detail = "; ".join(wrong) or f"{answer.rows} rows"
        if outcome != "agrees" and limit is not None:
            outcome, detail = "limit", f"{limit.says} (noted {limit.noted}): {detail}"
        seen = answer if isinstance(answer, Seen) else None
        yield ReaderVerdict(
            reader=name,
            version=wanted.version,
            outcome=outcome,
            detail=detail,
            rows=seen.rows if seen else None,
            files=seen.files if seen else None,
        )


def _differences(seen: Seen, wanted: Expected, usual: str) -> Iterator[str]:
    if seen.files is not None and seen.files != wanted.files:
        yield f"{seen.files} files, by the log {wanted.files}"
    if wanted.rows is not None and seen.rows != wanted.rows:
        yield f"{seen.rows} rows, by the log {wanted.rows}"
    if seen.digest != usual:
        yield "other values than the other readers"


def _text(value: Any) -> str:  # noqa: C901, PLR0911 - one case per type
    """A value in one spelling for all readers."""
    match value:
        case None:
            return "\x00"
        case bool():
            return "true" if value else "false"
        case float() if math.isnan(value):
            return "NaN"
        case float() if value.is_integer():
            return str(int(value))
        case Decimal():
            return f"{value.normalize():f}"
        case datetime():
            aware = value.astimezone(UTC) if value.tzinfo else value
            return aware.replace(tzinfo=None).isoformat(timespec="microseconds")
        case date() | time() | timedelta():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return "{" + ",".join(f"{k}={_text(v)}" for k, v in sorted(value.items())) + "}"
        case list() | tuple():
            return "[" + ",".join(_text(item) for item in value) + "]"
    return str(value)
