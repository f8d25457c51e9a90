"""Every table of the corpora, rebuilt from SQL, read as the original is read.

Data files are copied, the log is made from SQL alone: once with every commit file and our
checkpoint of the head, once more after a cleanup, when older tables have nothing but that
checkpoint. What a reader refuses of the original it must refuse of the copy in the same words, and
how many tables each one does read is part of what the tests expect. Where data files are not in
the corpora, the live files are compared instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_assets_tests.acceptance.readers import deltalake_reader, duckdb_reader, live_files
from mirror_assets_tests.acceptance.rebuilt import compared, on_disk

if TYPE_CHECKING:
    from mirror_assets_tests.acceptance.rebuilt import Corpus, Place
    from mirror_assets_tests.store_services import S3Server

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark"), pytest.mark.slow]

TAKEN_OVER = 174
#: tables whose checkpoints are not ours to write
FOREIGN = 14
#: tables of which a reader gives rows; the others it refuses, or their data files are absent
READ = {"deltalake": 148, "duckdb": 156}


def test_every_table_is_rebuilt_and_the_old_ones_are_cleaned(corpus: Corpus) -> None:
    assert len(corpus.copies) == TAKEN_OVER
    assert sum(copy.done.no_checkpoint is not None for copy in corpus.copies) == FOREIGN
    assert sum(copy.cleaned is None for copy in corpus.copies) == FOREIGN
    assert sum(copy.deleted for copy in corpus.copies) > TAKEN_OVER


def test_deltalake_reads_the_same_rows(corpus: Corpus) -> None:
    verdict = compared(on_disk(corpus), deltalake_reader())
    assert (verdict.differences, verdict.originals) == ([], READ["deltalake"])


def test_deltalake_lists_the_same_files(corpus: Corpus) -> None:
    verdict = compared(on_disk(corpus), live_files)
    assert (verdict.differences, verdict.originals) == ([], TAKEN_OVER)


def test_duckdb_reads_the_same_rows(corpus: Corpus) -> None:
    verdict = compared(on_disk(corpus), duckdb_reader())
    assert (verdict.differences, verdict.originals) == ([], READ["duckdb"])


def test_on_a_real_s3_server_they_read_the_same(
    corpus_on_s3: list[Place], seaweedfs: S3Server
) -> None:
    readers = [
        (deltalake_reader(), deltalake_reader(seaweedfs)),
        (duckdb_reader(), duckdb_reader(seaweedfs)),
        (live_files, lambda place: live_files(place, seaweedfs)),
    ]
    for here, there in readers:
        verdict = compared(corpus_on_s3, here, there)
        assert verdict.differences == []
        assert verdict.originals > 0.8 * len(corpus_on_s3)
        assert verdict.copies > 1.6 * len(corpus_on_s3)
