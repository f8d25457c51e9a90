"""Commit files from SQL into a log, ascending: for logs that lost some, and for new ones.

The bytes have the digest that was frozen at the commit, or nothing is written. A file that is
there already is left alone, whatever it holds.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import CommitIntegrityError, DivergenceError
from mirror_assets.metastore.commit_reader import stream_commit
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_facts import CommitFact, LogFacts
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.storage.log_store import Different, LogStore, Put

#: commits held in memory together; a larger one goes through a file
_BATCH_BYTES: Final = 32 * 1024 * 1024
_BATCH_VERSIONS: Final = 100


def publish_commits(
    metastore: Metastore, store: LogStore, facts: LogFacts, versions: Iterable[int]
) -> Iterator[int]:
    """Publish them in this order; yields each version that is in the log now.

    Raises DivergenceError where other bytes lie, CommitIntegrityError where SQL's rows do not
    give the bytes that were committed.
    """
    reader, table = LogReader(metastore), facts.table
    for batch in _batches([facts.commits[version] for version in versions]):
        first, last = batch[0], batch[-1]
        if first.byte_length > _BATCH_BYTES:
            _require_ours(_publish_large(metastore, store, facts, first), first)
            yield first.version
            continue
        for commit in list(reader.commits(table.name, first.version, last.version)):
            data = commit.encode(table.name)
            name = CommitName(commit.version)
            put = store.put_if_absent(name, data, mtime_ms=commit.timestamp_ms)
            _require_ours(put, facts.commits[commit.version])
            yield commit.version


def _batches(commits: list[CommitFact]) -> Iterator[list[CommitFact]]:
    """Runs without a gap that fit into memory; a large commit alone."""
    batch: list[CommitFact] = []
    size = 0
    for commit in commits:
        size += commit.byte_length
        follows = batch and commit.version == batch[-1].version + 1
        if batch and not (follows and size <= _BATCH_BYTES and len(batch) < _BATCH_VERSIONS):
            yield batch
            batch, size = [], commit.byte_length
        batch.append(commit)
    if batch:
        yield batch


def _publish_large(
    metastore: Metastore, store: LogStore, facts: LogFacts, commit: CommitFact
) -> Put:
    with tempfile.TemporaryDirectory(prefix="mirror-assets-") as directory:
        path, found = Path(directory) / "commit", hashlib.sha256()
        with path.open("wb") as file, metastore.read() as connection:
            for piece in stream_commit(connection, facts.table.table_id, commit.version):
                found.update(piece)
                file.write(piece)
        if found.hexdigest() != commit.sha256:
            message = "the commit's rows do not give the bytes that were committed"
            raise CommitIntegrityError(message, table=facts.table.name, version=commit.version)
        put = store.put_file_if_absent(CommitName(commit.version), path)
    if not isinstance(put, Different):
        store.set_mtime(CommitName(commit.version), commit.timestamp_ms)
    return put


def _require_ours(put: Put, commit: CommitFact) -> None:
    if isinstance(put, Different):
        message = f"{CommitName(commit.version)} holds {put.found_size} other bytes"
        raise DivergenceError(message, version=commit.version)
