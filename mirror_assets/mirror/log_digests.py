"""Digests of commit files in a log, many requests in flight, against those frozen in SQL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import chain, islice
from typing import Final

from mirror_assets.delta.log_paths import LogEntry
from mirror_assets.metastore.log_facts import CommitFact
from mirror_assets.storage.log_store import LogStore, digest

#: which of these commit files do not hold the commit's bytes; see `differing`
Differing = Callable[
    [LogStore, Iterable[tuple[LogEntry, CommitFact]]], Iterable[tuple[LogEntry, CommitFact]]
]
#: requests in flight: latency, not bandwidth, is what a store makes one wait for
_REQUESTS: Final = 16
#: files that one thread looks at before it comes back for more, and all of them together
_STRETCH: Final = 16
_CHUNK: Final = _STRETCH * _REQUESTS * 4
#: a larger file is read as a stream
_HELD_BYTES: Final = 4 * 1024 * 1024


def differing(
    store: LogStore, files: Iterable[tuple[LogEntry, CommitFact]]
) -> Iterator[tuple[LogEntry, CommitFact]]:
    """Those whose bytes are not the commit's, in the given order; one that is gone is none."""
    with ThreadPoolExecutor(_REQUESTS, thread_name_prefix="log-digests") as pool:
        for chunk in _chunks(files):
            stretches = [chunk[n : n + _STRETCH] for n in range(0, len(chunk), _STRETCH)]
            digests = pool.map(lambda files: [_digest(store, file) for file, _ in files], stretches)
            found = chain.from_iterable(digests)
            for (entry, commit), sha256 in zip(chunk, found, strict=True):
                if sha256 is not None and sha256 != commit.sha256:
                    yield entry, commit


def _chunks(
    files: Iterable[tuple[LogEntry, CommitFact]],
) -> Iterator[Sequence[tuple[LogEntry, CommitFact]]]:
    rest = iter(files)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk


def _digest(store: LogStore, entry: LogEntry) -> str | None:
    if entry.size <= _HELD_BYTES:
        data = store.read(entry.path)
        return None if data is None else digest(data)
    stream = store.open(entry.path)
    if stream is None:
        return None
    with closing(stream):
        found = hashlib.sha256()
        while piece := stream.read(_HELD_BYTES):
            found.update(piece)
        return found.hexdigest()
