from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_assets_tests.pipeline.lakehouse import Lakehouse, a_lakehouse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def lakehouse(spark: SparkSession, tmp_path: Path) -> Iterator[Lakehouse]:
    """Tables on local disk with SQLite as their metastore, and the session that fills them."""
    with a_lakehouse(spark, tmp_path, f"sqlite:///{tmp_path / 'metastore.db'}") as made:
        yield made
