from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.mirror.lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table still to be created, in SQLite and a local directory."""
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        yield Lake(metastore, tmp_path / "table")
