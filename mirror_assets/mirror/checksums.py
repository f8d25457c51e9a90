"""Version checksums (`.crc`) of every published version, for those who want them.

Written after the commit is published and recorded, and never owed: readers do without. One that
cannot be written is said, and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.mirror_queue import ClaimResult
from mirror_assets.mirror.checkpointer import publish_version_checksum
from mirror_assets.storage.log_store import LogStore

_THREADS: Final = 8

logger = structlog.get_logger(__name__)


def publish_checksums(
    metastore: Metastore, open_store: Callable[[str], LogStore], results: Sequence[ClaimResult]
) -> None:
    """Write the checksum of every version that a round has published."""

    def of_table(result: ClaimResult) -> None:
        claim = result.claim
        try:
            store = open_store(claim.location)
            for published in result.published:
                publish_version_checksum(metastore, store, claim.name, published.version)
        except MirrorAssetsError as error:
            logger.warning("checksum_failed", table=claim.name, error=str(error))

    done = [result for result in results if result.published]
    if done:
        with ThreadPoolExecutor(min(_THREADS, len(done))) as pool:
            for _ in pool.map(of_table, done):
                pass
