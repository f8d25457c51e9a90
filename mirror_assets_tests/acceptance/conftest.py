"""The corpora, imported and rebuilt once for all tests that read them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from mirror_assets_tests.acceptance.rebuilt import (
    Corpus,
    Place,
    corpus_tables,
    imported,
    rebuilt_on_disk,
    rebuilt_on_s3,
)
from mirror_assets_tests.builders import a_metastore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets_tests.store_services import S3Server


@pytest.fixture(scope="session")
def corpus(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    """Tests that use it stay in one test process, because it takes a while."""
    home = tmp_path_factory.mktemp("corpora")
    with a_metastore(f"sqlite:///{home / 'metastore.db'}") as metastore:
        tables = imported(metastore, corpora, corpus_tables(corpora))
        copies = [rebuilt_on_disk(metastore, corpora, table, home) for table in tables]
        yield Corpus(metastore, corpora, copies)


@pytest.fixture(scope="session")
def corpus_on_s3(corpus: Corpus, seaweedfs: S3Server) -> list[Place]:
    """The same on a real S3 server."""
    root = str(uuid.uuid4())
    return [rebuilt_on_s3(corpus, copy, seaweedfs, root, copy.kinds) for copy in corpus.copies]
