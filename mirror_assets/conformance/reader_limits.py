"""Known limits of readers: the one table of what is excused, why, and since when.

A reader that refuses what it does not support is no danger; one that reads something else is. So
a limit excuses one kind of answer, to tables that it names, of the release that the project is
locked to. With a newer release it is asked again, and taken out when it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from mirror_assets.delta.locations import Location

Aspect = Literal["files", "rows", "values"]
_NOTED: Final = "2026-11-18"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a reader was asked for, and what it said if it refused."""

    place: Location
    version: int
    #: the newest version of the table
    newest: int
    features: frozenset[str] = frozenset()
    #: the types of all columns and their parts
    types: frozenset[str] = frozenset()
    #: the types of the partition columns
    partitions: frozenset[str] = frozenset()
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A known limit of a reader: what it does to which tables, and when it was seen."""

    #: `*` for all of them
    reader: str
    when: Callable[[Asked], bool]
    says: str
    #: what it reads wrongly; empty: it refuses
    wrong: frozenset[Aspect] = frozenset()
    noted: str = _NOTED


def limit_of(reader: str, asked: Asked, wrong: Collection[Aspect]) -> Limit | None:
    """What excuses this reader: for reading these wrongly, or for refusing if there are none."""
    return next(_limits(reader, asked, wrong), None)


def is_limited(reader: str, asked: Asked) -> bool:
    """Whether it is known to read such tables wrongly: then its word counts for less."""
    return any(
        limit.wrong and limit.reader in (reader, "*") and limit.when(asked) for limit in LIMITS
    )


def _limits(reader: str, asked: Asked, wrong: Collection[Aspect]) -> Iterator[Limit]:
    for limit in LIMITS:
        excuses = set(wrong) <= limit.wrong if wrong else not limit.wrong
        if excuses and limit.reader in (reader, "*") and limit.when(asked):
            yield limit


def _has(*names: str) -> Callable[[Asked], bool]:
    """Tables with one of these features."""
    return lambda asked: not asked.features.isdisjoint(names)


def _said(words: str) -> Callable[[Asked], bool]:
    """Where the reader itself says so."""
    return lambda asked: words in asked.said


def _mapped_and_partitioned(asked: Asked) -> bool:
    return "columnMapping" in asked.features and bool(asked.partitions)


def _nested(asked: Asked) -> bool:
    return not asked.types.isdisjoint(("array", "map", "struct"))


def _older_and_said(words: str) -> Callable[[Asked], bool]:
    """Where a version before the newest was asked for."""
    return lambda asked: asked.version < asked.newest and words in asked.said


def _odd_place(asked: Asked) -> bool:
    """The table's own path has characters that a URI spells otherwise."""
    return "%" in asked.place.uri and "commit file" in asked.said


_VALUES: Final[frozenset[Aspect]] = frozenset(("values",))
_ROWS: Final[frozenset[Aspect]] = frozenset(("rows", "values"))

LIMITS: Final = (
    Limit(
        reader="*",
        when=_has("catalogManaged"),
        says="readers by path refuse catalog-managed tables, as the protocol tells them to",
    ),
    Limit(
        reader="deltalake",
        when=_has("typeWidening"),
        says="deltalake 1.6.6 refuses tables with widened types",
    ),
    Limit(
        reader="duckdb",
        when=_has("variantType"),
        says="DuckDB 1.5.5 has no variant type for Delta tables",
    ),
    Limit(
        reader="duckdb",
        when=_mapped_and_partitioned,
        wrong=_VALUES,
        says="DuckDB 1.5.5 reads partition values of mapped columns as null",
    ),
    Limit(
        reader="sail",
        when=_older_and_said("Missing commit file: expected version 0, found"),
        says="Sail 0.7.2 does not travel to versions between 1 and the newest checkpoint",
    ),
    Limit(
        reader="sail",
        when=_odd_place,
        says="Sail 0.7.2 finds no table whose path has blanks or letters beyond ASCII",
    ),
    Limit(
        reader="deltalake-0.25",
        when=_has("columnMapping", "deletionVectors", "typeWidening", "v2Checkpoint"),
        says="deltalake 0.25.5 supports no reader feature but timestampNtz",
    ),
    Limit(
        reader="chdb",
        when=_older_and_said("Time travel (delta_lake_snapshot_version) is not supported"),
        says="ClickHouse 26.9 has no time travel without delta-kernel-rs",
    ),
    Limit(
        reader="chdb",
        when=_has("v2Checkpoint"),
        says="ClickHouse 26.9 looks for a classic checkpoint where a V2 one is, and gives up",
    ),
    Limit(
        reader="chdb",
        when=_said("Unsupported DeltaLake type for Decimal"),
        says="ClickHouse 26.9 has no decimals as partition columns of Delta tables",
    ),
    Limit(
        reader="chdb",
        when=_has("deletionVectors"),
        wrong=_ROWS,
        says="ClickHouse 26.9 ignores deletion vectors without delta-kernel-rs: deleted rows show",
    ),
    Limit(
        reader="chdb",
        when=_has("columnMapping"),
        wrong=_VALUES,
        says="ClickHouse 26.9 names mapped columns as the data files do",
    ),
    Limit(
        reader="chdb",
        when=_nested,
        wrong=_VALUES,
        says="ClickHouse has no null for arrays and maps: it reads empty ones",
    ),
)
