"""Independent readers behind one port, and their verdict on a table.

A reader is asked for versions of a table and tells what it sees: rows, a digest of their values,
and live files. Readers must agree with what the log says and with each other. One that refuses, or
differs, where that is a known limit of it, is excused by name and date; anything else is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol
from urllib.parse import unquote

from mirror_assets.conformance.reader_limits import Asked, Aspect, is_limited, limit_of
from mirror_assets.conformance.report import Growth, ReaderVerdict
from mirror_assets.delta.locations import Location
from mirror_assets.findings import Finding, Severity
from mirror_assets.storage.options import StoreOptions

_RULE: Final = "DL-REC-10"
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
    #: their names below the table's root, decoded; None where the reader does not tell
    paths: frozenset[str] | None = None


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
class Expected:
    """What is known of a version, by the log or by SQL: the truth that readers are held to."""

    version: int
    files: int
    #: None where statistics do not count all rows
    rows: int | None = None
    #: the names of the live files; None where only their number is known
    paths: frozenset[str] | None = None
    #: of the rows; None where only the readers tell
    digest: str | None = None


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
    types: frozenset[str] = frozenset(),
    partitions: frozenset[str] = frozenset(),
    options: StoreOptions | None = None,
) -> tuple[ReaderVerdict, ...]:
    """Ask each reader for each version, and judge the answers by what is known and by each other.

    `features`, `types` and `partitions` are what known limits depend on: those of the table, of its
    columns and their parts, and of its partition columns.
    """
    verdicts: list[ReaderVerdict] = []
    for wanted in expected:
        asked = Asked(
            place=place,
            version=wanted.version,
            newest=max(each.version for each in expected),
            features=features,
            types=types,
            partitions=partitions,
        )
        answers = {
            reader.name: _answer(reader, place, wanted.version, options or StoreOptions())
            for reader in readers
        }
        verdicts += _judged(answers, wanted, asked)
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


def names_below(place: Location, listed: Iterable[str], *, encoded: bool) -> frozenset[str]:
    """The names of a table's files, from names or URIs as a reader lists them."""
    root = re.escape(place.path.rstrip("/"))
    head = re.compile(rf"(?:[a-z0-9]+:(?://[^/]*)?)?{root}/")
    plain = map(unquote, listed) if encoded else listed
    return frozenset(head.sub("", name, count=1) if head.match(name) else name for name in plain)


def _sampled(growth: Sequence[Growth], count: int) -> list[Growth]:
    if not growth:
        return []
    last = len(growth) - 1
    places = {last, *(last * n // max(1, count - 1) for n in range(count - 1))}
    return [growth[place] for place in sorted(places)]


def _answer(reader: Reader, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
    try:
        return reader.read(place, version, options)
    except Exception as exc:  # noqa: BLE001 - other people's programs: each raises its own
        return Refused(f"{type(exc).__name__}: {exc}".partition("\n")[0][:_SHOWN])


def _judged(
    answers: Mapping[str, Seen | Refused], wanted: Expected, asked: Asked
) -> Iterator[ReaderVerdict]:
    usual = wanted.digest or _usual(answers, asked)
    for name, answer in answers.items():
        wrong: dict[Aspect, str] = {}
        if isinstance(answer, Refused):
            outcome, detail = "refuses", answer.reason
            limit = limit_of(name, replace(asked, said=answer.reason), ())
        else:
            wrong = dict(_differences(answer, wanted, usual))
            outcome = "differs" if wrong else "agrees"
            detail = "; ".join(wrong.values()) or f"{answer.rows} rows"
            limit = limit_of(name, asked, wrong) if wrong else None
        if limit is not None:
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


def _usual(answers: Mapping[str, Seen | Refused], asked: Asked) -> str | None:
    """What most readers see, those first that are not known to see it wrongly; None in a tie."""
    seen = {name: answer for name, answer in answers.items() if isinstance(answer, Seen)}
    sound = [answer for name, answer in seen.items() if not is_limited(name, asked)]
    votes = Counter(answer.digest for answer in sound or seen.values()).most_common(2)
    if not votes or (len(votes) > 1 and votes[0][1] == votes[1][1]):
        return None
    return votes[0][0]


def _differences(seen: Seen, wanted: Expected, usual: str | None) -> Iterator[tuple[Aspect, str]]:
    if seen.files is not None and seen.files != wanted.files:
        yield "files", f"{seen.files} files, by the log {wanted.files}"
    elif seen.paths is not None and wanted.paths is not None and seen.paths != wanted.paths:
        odd = min(seen.paths ^ wanted.paths)
        yield (
            "files",
            f"other files: {odd} is live {'here' if odd in seen.paths else 'in SQL'} only",
        )
    if wanted.rows is not None and seen.rows != wanted.rows:
        yield "rows", f"{seen.rows} rows, by the log {wanted.rows}"
    if seen.digest != usual:
        truth = "were written" if wanted.digest else "the other readers see"
        yield "values", f"other values than {truth}"
