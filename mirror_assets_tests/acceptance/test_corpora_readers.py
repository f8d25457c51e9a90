"""Every table of the corpora, rebuilt from SQL, read as the original is read.

Data files are copied, the log is made from SQL alone: once with every commit file and our
checkpoint of the head, once more after a cleanup, when older tables have nothing but that
checkpoint. What a reader refuses of the original it must refuse of the copy in the same words, and
how many tables each one does read is part of what the tests expect. Where data files are not in
the corpora, the live files are compared instead.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from mirror_assets_tests.acceptance.readers import deltalake_reader, duckdb_reader, live_files
from mirror_assets_tests.acceptance.rebuilt import compared, on_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror_assets_tests.acceptance.readers import Answer
    from mirror_assets_tests.acceptance.rebuilt import Corpus, Place
    from mirror_assets_tests.store_services import S3Server

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("seaweedfs"), pytest.mark.slow]

TAKEN_OVER = 174
#: tables whose checkpoints are not ours to write
FOREIGN = 14
#: tables of which a reader gives rows; the others it refuses, or their data files are absent
READ = {"deltalake": 148, "duckdb": 156, "files": TAKEN_OVER}


def test_every_table_is_rebuilt_and_the_old_ones_are_cleaned(corpus: Corpus) -> None:
    assert len(corpus.copies) == TAKEN_OVER
    assert sum(copy.done.no_checkpoint is not None for copy in corpus.copies) == FOREIGN
    assert sum(copy.cleaned is None for copy in corpus.copies) == FOREIGN
    assert sum(copy.deleted for copy in corpus.copies) > TAKEN_OVER


@pytest.fixture(scope="module")
def here() -> Mapping[str, Callable[[str], Answer]]:
    """The readers of what is on disk; what was read once is not read again."""
    return {
        "deltalake": cache(deltalake_reader()),
        "duckdb": cache(duckdb_reader()),
        "files": cache(live_files),
    }


@pytest.mark.parametrize(("reader", "read"), READ.items())
def test_they_read_the_same(
    corpus: Corpus, here: Mapping[str, Callable[[str], Answer]], reader: str, read: int
) -> None:
    verdict = compared(on_disk(corpus), here[reader])
    assert (verdict.differences, verdict.originals) == ([], read)


@pytest.mark.parametrize(("reader", "read"), READ.items())
def test_on_a_real_s3_server_they_read_the_same(
    corpus_on_s3: list[Place],
    seaweedfs: S3Server,
    here: Mapping[str, Callable[[str], Answer]],
    reader: str,
    read: int,
) -> None:
    there: Mapping[str, Callable[[str], Answer]] = {
        "deltalake": deltalake_reader(seaweedfs),
        "duckdb": duckdb_reader(seaweedfs),
        "files": lambda place: live_files(place, seaweedfs),
    }
    verdict = compared(corpus_on_s3, here[reader], there[reader])
    assert (verdict.differences, verdict.originals) == ([], read)
    assert verdict.copies > 1.8 * read
