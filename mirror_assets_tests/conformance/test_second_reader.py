"""Readers in environments of their own: how they are asked, and what becomes of trouble."""

from __future__ import annotations

import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from mirror_assets.conformance import second_opinion
from mirror_assets.conformance.readers import Refused, Seen
from mirror_assets.conformance.second_reader import SecondReader
from mirror_assets.delta.locations import normalise_location
from mirror_assets.errors import ReaderMissingError
from mirror_assets.storage.options import Secret, StoreOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Make = Callable[..., SecondReader]

PLACE = normalise_location("/lake/a b")
OPTIONS = StoreOptions()
#: a program that answers each request by what `answer` makes of it
PROGRAM = """
import json, os, sys, time
import pyarrow as pa

def rows(request, *numbers):
    table = pa.table({"id": list(numbers)})
    with pa.OSFile(request["rows"], "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)

asked = 0
for line in sys.stdin:
    request = json.loads(line)
    asked += 1
    print(json.dumps(answer(request, asked)), flush=True)
"""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A reader `odd` in an environment of its own; its program is what a test gives."""
    made: list[SecondReader] = []
    python = tmp_path / "odd" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # By its whole path it finds its libraries, which a link beside nothing does not.
    python.write_text(f'#!/bin/sh\nshift\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)

    def with_program(answer: str, **options: float) -> SecondReader:
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(answer) + PROGRAM)
        monkeypatch.setattr(second_opinion, "__file__", str(program))
        made.append(SecondReader("odd", tmp_path, **options))
        return made[-1]

    yield with_program
    for reader in made:
        reader.close()


def test_an_environment_that_is_missing_is_told_with_the_way_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ReaderMissingError, match="sail is not in") as caught:
        SecondReader("sail", tmp_path)
    assert "make readers" in caught.value.remedy


def test_rows_files_and_version_are_taken_from_the_answer(make: Make) -> None:
    reader = make("""
        def answer(request, asked):
            rows(request, 1, 2, 3)
            return {"version": request["version"], "files": ["/lake/a b/x y.parquet", "z.parquet"]}
    """)
    seen = reader.read(PLACE, 7, OPTIONS)
    assert isinstance(seen, Seen)
    assert (seen.rows, seen.files, seen.paths) == (3, 2, {"x y.parquet", "z.parquet"})


def test_a_reader_need_not_tell_its_files(make: Make) -> None:
    reader = make("""
        def answer(request, asked):
            rows(request)
            return {"version": request["version"], "files": None}
    """)
    seen = reader.read(PLACE, 7, OPTIONS)
    assert isinstance(seen, Seen)
    assert (seen.rows, seen.files, seen.paths) == (0, None, None)


def test_another_version_than_asked_for_is_a_refusal(make: Make) -> None:
    reader = make("""
        def answer(request, asked):
            return {"version": 8, "files": []}
    """)
    assert reader.read(PLACE, 7, OPTIONS) == Refused("it opened version 8")


def test_what_it_says_is_the_reason_and_it_is_asked_again(make: Make) -> None:
    reader = make("""
        def answer(request, asked):
            return {"refused": f"no, says {asked}"}
    """)
    answers = [reader.read(PLACE, version, OPTIONS) for version in (1, 2)]
    assert answers == [Refused("no, says 1"), Refused("no, says 2")]


def test_a_reader_that_dies_is_told_by_its_last_words_and_started_again(make: Make) -> None:
    reader = make("""
        def answer(request, asked):
            if request["version"] == 1:
                sys.exit("out of memory")
            return {"refused": f"no, says {asked}"}
    """)
    assert reader.read(PLACE, 1, OPTIONS) == Refused("it ended with code 1: out of memory")
    assert reader.read(PLACE, 2, OPTIONS) == Refused("no, says 1")


def test_a_reader_that_hangs_is_ended(make: Make) -> None:
    reader = make(
        """
        def answer(request, asked):
            time.sleep(600)
        """,
        patience_s=0.5,
    )
    start = time.monotonic()
    assert reader.read(PLACE, 1, OPTIONS) == Refused("no answer within 0.5 s")
    assert time.monotonic() - start < 60


def test_credentials_go_through_the_pipe_and_nowhere_else(make: Make) -> None:
    reader = make("""
        def answer(request, asked):
            told = request["store"]["secret_access_key"]
            shown = [*sys.argv, *os.environ.values()]
            return {"refused": f"{told} {any(told in text for text in shown)}"}
    """)
    options = StoreOptions(credentials=(("secret_access_key", Secret("hush-4711")),))
    assert reader.read(PLACE, 1, options) == Refused("hush-4711 False")
    assert "hush" not in repr(reader)


def test_other_stores_than_local_ones_and_s3_are_not_asked_for(make: Make) -> None:
    reader = make("""
        def answer(request, asked):
            return {"refused": "asked"}
    """)
    answer = reader.read(normalise_location("gs://bucket/t"), 1, OPTIONS)
    assert isinstance(answer, Refused)
    assert "gs" in answer.reason
