"""What readers are believed, what they are excused for, and that the page says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror_assets.conformance.reader_limits import LIMITS, Limit
from mirror_assets.conformance.readers import Expected, Refused, Seen, ask_readers, names_below
from mirror_assets.delta.locations import normalise_location

if TYPE_CHECKING:
    from mirror_assets.conformance.report import ReaderVerdict
    from mirror_assets.delta.locations import Location
    from mirror_assets.storage.options import StoreOptions

PLACE = normalise_location("/lake/t")
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "conformance.md").read_text()
A, B = (Seen(rows=5, digest=digest, files=2) for digest in "ab")


@dataclass(frozen=True)
class Told:
    """A reader that says what a test wants."""

    name: str
    answer: Seen | Refused

    def read(self, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
        del place, version, options
        return self.answer

    def close(self) -> None:
        pass


def judged(
    *answers: tuple[str, Seen | Refused], newest: int = 3, **known: Any
) -> dict[str, ReaderVerdict]:
    """The verdicts on version 3."""
    truth = {name: known.pop(name) for name in ("digest", "paths") if name in known}
    expected = [Expected(version=3, files=2, rows=5, **truth)]
    expected += [Expected(version=newest, files=2, rows=5)] if newest > 3 else []
    known.setdefault("features", frozenset())
    verdicts = ask_readers([Told(*answer) for answer in answers], PLACE, expected, **known)
    return {verdict.reader: verdict for verdict in verdicts if verdict.version == 3}


def outcomes(*answers: tuple[str, Seen | Refused], **known: Any) -> list[str]:
    return [verdict.outcome for verdict in judged(*answers, **known).values()]


def test_two_parties_of_one_size_are_both_doubted() -> None:
    assert outcomes(("one", A), ("two", B)) == ["differs", "differs"]
    assert outcomes(("one", A), ("two", B), ("three", A)) == ["agrees", "differs", "agrees"]


def test_what_was_written_counts_for_more_than_what_most_readers_see() -> None:
    assert outcomes(("one", A), ("two", A), ("three", B), digest="b") == [
        *("differs", "differs", "agrees"),
    ]


def test_a_reader_that_is_known_to_see_it_wrongly_has_no_vote() -> None:
    known = {"features": frozenset({"deletionVectors"})}
    holed = Seen(rows=7, digest="b", files=2)
    assert outcomes(("chdb", holed), ("duckdb", A), **known) == ["limit", "agrees"]


def test_other_files_of_the_same_number_are_a_difference() -> None:
    seen = Seen(rows=5, digest="a", files=2, paths=frozenset({"x", "z"}))
    found = judged(("one", seen), ("two", A), paths=frozenset({"x", "y"}))
    assert (found["one"].outcome, found["two"].outcome) == ("differs", "agrees")
    assert "y is live in SQL only" in found["one"].detail


@pytest.mark.parametrize(
    ("reader", "answer", "known"),
    [
        # It refuses such tables; to read them wrongly is something else.
        ("deltalake", B, {"features": frozenset({"typeWidening"})}),
        # It shows deleted rows; more or fewer files are something else.
        (
            "chdb",
            Seen(rows=7, digest="b", files=1),
            {"features": frozenset({"deletionVectors"})},
        ),
        # It reads null for partition values; lost rows are something else.
        (
            "duckdb",
            Seen(rows=4, digest="b", files=2),
            {"features": frozenset({"columnMapping"}), "partitions": frozenset({"string"})},
        ),
        # The newest version is no time travel.
        ("chdb", Refused("Time travel (delta_lake_snapshot_version) is not supported"), {}),
        ("sail", Refused("Missing commit file: expected version 0, found 2"), {}),
        # Its words are of another matter.
        ("sail", Refused("connection refused"), {"newest": 9}),
        # It is another reader's limit.
        ("duckdb", Refused("no V2"), {"features": frozenset({"v2Checkpoint"})}),
    ],
)
def test_a_limit_excuses_nothing_else_than_it_names(
    reader: str, answer: Seen | Refused, known: dict[str, Any]
) -> None:
    verdict = judged((reader, answer), ("one", A), ("two", A), **known)[reader]
    assert verdict.outcome in ("differs", "refuses")


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ("chdb", "Time travel (delta_lake_snapshot_version) is not supported without DeltaKernel."),
        ("sail", "AnalysisException: Missing commit file: expected version 0, found 2"),
    ],
)
def test_older_versions_that_a_reader_does_not_reach_are_excused(reader: str, said: str) -> None:
    verdict = judged((reader, Refused(said)), ("one", A), newest=9)[reader]
    assert verdict.outcome == "limit"
    assert said in verdict.detail


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.says)
def test_the_page_tells_every_limit_with_its_date(limit: Limit) -> None:
    reader = "all" if limit.reader == "*" else f"`{limit.reader}`"
    rows = [line for line in PAGE.splitlines() if line.startswith(f"| {reader} | {limit.says} |")]
    assert len(rows) == 1
    assert rows[0].endswith(f"| {limit.noted} |")
    assert ("refuses" in rows[0]) == (not limit.wrong)


@pytest.mark.parametrize(
    ("place", "listed", "encoded"),
    [
        ("/lake/a b", "/lake/a b/p=x%3Ay/f.parquet", False),
        ("/lake/a b", "file:///lake/a%20b/p=x%253Ay/f.parquet", True),
        ("/lake/a b", "file:/lake/a%20b/p=x%253Ay/f.parquet", True),
        ("/lake/a b", "p=x%3Ay/f.parquet", False),
        ("s3://bucket/a b", "s3a://bucket/a%20b/p=x%253Ay/f.parquet", True),
        ("s3://bucket/a b", "s3://bucket/a b/p=x%3Ay/f.parquet", False),
    ],
)
def test_every_spelling_of_a_file_is_its_name_below_the_table(
    place: str, listed: str, encoded: bool
) -> None:
    found = names_below(normalise_location(place), [listed], encoded=encoded)
    assert found == {"p=x%3Ay/f.parquet"}
