"""The tables of the corpora, imported and rebuilt elsewhere, with their data files beside."""

from __future__ import annotations

import logging
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mirror_assets.errors import ImportRefusedError, UnsupportedTableError
from mirror_assets.metastore.importer import import_table
from mirror_assets.mirror.cleanup import apply_cleanup, plan_of
from mirror_assets.mirror.rebuild import Rebuilt, rebuild
from mirror_assets.storage.log_source import open_log
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store
from mirror_assets_tests.acceptance.readers import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mirror_assets.metastore.database import Metastore
    from mirror_assets_tests.acceptance.readers import Answer
    from mirror_assets_tests.store_services import S3Server

T = TypeVar("T")
logger = logging.getLogger(__name__)
#: 1 is every table, where a test takes only every so many
_STEP = os.environ.get("MIRROR_TEST_CORPORA_STEP")


def corpus_tables(corpora: Path) -> dict[str, str]:
    """Each table of the index, with what deltalake says of it."""
    lines = (corpora / "INDEX.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[0]: line.split("\t")[4] for line in lines}


def table_name(table: str) -> str:
    return "corpora." + re.sub(r"[^a-z0-9_-]", "_", table.lower())[-60:].lstrip("-")


@dataclass(frozen=True)
class Copy:
    """A table of the corpora, and the places of what was made of it."""

    table: str
    #: as it was
    original: str
    #: with all commit files and our checkpoint of the head
    rebuilt: str
    #: the same, with what has expired taken away; None where cleanup is not ours
    cleaned: str | None
    done: Rebuilt
    deleted: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """What was made of it."""
        return ("rebuilt", "cleaned") if self.cleaned else ("rebuilt",)


@dataclass(frozen=True)
class Corpus:
    metastore: Metastore
    corpora: Path
    copies: list[Copy]


@dataclass(frozen=True)
class Place:
    """Where a copy of a table lies, and where the original of it."""

    original: str
    #: with our checkpoint of the head, and once more after cleanup, where that is ours
    copies: tuple[str, ...]


def on_disk(corpus: Corpus) -> list[Place]:
    return [
        Place(copy.original, (copy.rebuilt, *([copy.cleaned] if copy.cleaned else [])))
        for copy in corpus.copies
    ]


def spread(of: Sequence[T], step: int) -> Sequence[T]:
    """Every so many, or as many as MIRROR_TEST_CORPORA_STEP asks for."""
    step = int(_STEP or step)
    return of[step // 2 :: step]


def imported(metastore: Metastore, corpora: Path, tables: Iterable[str]) -> list[str]:
    """Those that can be taken over, which now are."""
    taken = []
    for table in tables:
        try:
            import_table(metastore, open_log(str(corpora / table)), table_name(table))
        except ImportRefusedError:
            continue
        taken.append(table)
    return taken


def rebuilt_on_disk(metastore: Metastore, corpora: Path, table: str, home: Path) -> Copy:
    name = table_name(table)
    original, rebuilt, cleaned = (
        home / kind / table for kind in ("original", "rebuilt", "cleaned")
    )
    # Hadoop's own checksums are left out: some are of files that were edited since.
    shutil.copytree(corpora / table, original, ignore=shutil.ignore_patterns(".*.crc"))
    for place in (rebuilt, cleaned):
        shutil.copytree(original, place, ignore=shutil.ignore_patterns("_delta_log"))
    options = StoreOptions(durable=False)
    done = rebuild(metastore, name, open_store(str(rebuilt), options, allowed_roots=[]))
    shutil.copytree(rebuilt / "_delta_log", cleaned / "_delta_log")
    store = open_store(str(cleaned), options, allowed_roots=[])
    try:
        plan = plan_of(metastore, store, name)
    except UnsupportedTableError:
        return Copy(table, str(original), str(rebuilt), None, done)
    apply_cleanup(metastore, store, name, plan)
    return Copy(table, str(original), str(rebuilt), str(cleaned), done, len(plan.delete))


def rebuilt_on_s3(
    corpus: Corpus, copy: Copy, s3: S3Server, root: str, kinds: Sequence[str]
) -> Place:
    """The same on S3, with the data files uploaded by a client of another make."""
    places = [f"{root}/{kind}/{copy.table}" for kind in kinds]
    _upload(corpus.corpora / copy.table, s3, places)
    name, found = table_name(copy.table), []
    for kind, place in zip(kinds, places, strict=True):
        found.append(f"s3://{s3.bucket}/{place}")
        store = open_store(found[-1], s3.options(), allowed_roots=())
        rebuild(corpus.metastore, name, store)
        if kind == "cleaned":
            plan = plan_of(corpus.metastore, store, name)
            assert len(plan.delete) == copy.deleted, (place, plan)
            apply_cleanup(corpus.metastore, store, name, plan)
    return Place(copy.original, tuple(found))


def _upload(source: Path, s3: S3Server, places: Sequence[str]) -> None:
    client = s3.boto3()
    for file in source.rglob("*"):
        below = file.relative_to(source)
        if file.is_file() and below.parts[0] != "_delta_log":
            body = file.read_bytes()
            for place in places:
                key = f"{place}/{below.as_posix()}"
                client.put_object(Bucket=s3.bucket, Key=key, Body=body)
    client.close()


@dataclass(frozen=True)
class Verdict:
    """What a reader says otherwise of copies than of originals, and how often it gave rows."""

    differences: list[str]
    originals: int
    copies: int


def compared(
    places: Sequence[Place],
    read: Callable[[str], Answer],
    there: Callable[[str], Answer] | None = None,
    *,
    side_by_side: int = 1,
) -> Verdict:
    """Each copy beside its original; `there` reads copies of another store.

    A refusal is one in the same words, except on another store, whose clients have their own.
    """

    def of_one(place: Place) -> tuple[Answer, list[tuple[str, Answer]]]:
        logger.info("reading %s", place.original)
        return read(place.original), [(copy, (there or read)(copy)) for copy in place.copies]

    with ThreadPoolExecutor(side_by_side) as pool:
        answers = list(pool.map(of_one, places))
    differences, copies = [], 0
    for expected, found in answers:
        for place, answer in found:
            both_refuse = not isinstance(answer, Rows) and not isinstance(expected, Rows)
            if answer != expected and not (there and both_refuse):
                differences.append(f"{place}: {answer} instead of {expected}")
            copies += isinstance(answer, Rows)
    originals = sum(isinstance(expected, Rows) for expected, _ in answers)
    logger.info("of %d tables: %d originals, %d copies read", len(places), originals, copies)
    return Verdict(differences, originals, copies)
