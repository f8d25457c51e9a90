"""What an import reads: the log behind a port, its commit files ahead of need, its checkpoints.

The metastore and the stores do not know each other, so the log comes in through `LogSource`,
which every log of `storage.log_source` satisfies.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from mirror_assets.delta.actions import Action, CheckpointMetadata, Sidecar
from mirror_assets.delta.checkpoint import read_checkpoint_batches, read_json_checkpoint
from mirror_assets.delta.log_paths import (
    Checkpoint,
    LogEntry,
    LogListing,
    V2Checkpoint,
    sidecar_name,
)
from mirror_assets.errors import MirrorAssetsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirror_assets.delta.locations import Location

#: lines are looked at in windows of about this many bytes
_WINDOW: Final = 1024 * 1024
#: larger commit files are streamed, smaller ones read ahead
_READ_AHEAD: Final = 16 * 1024 * 1024
_FILES_AHEAD: Final = 1


class LogSource(Protocol):
    """Read-only access to a table's log; all names are relative to `_delta_log`."""

    @property
    def location(self) -> Location:
        """The table's root."""

    def list(self) -> LogListing:
        """All files of the log; StorageError if there is none."""

    def read(self, name: str) -> bytes:
        """The whole file; StorageError if it cannot be read."""

    def open(self, name: str) -> BinaryIO:
        """The file as a seekable stream; raises as `read` does."""


def read_ahead(
    source: LogSource, entries: Iterable[LogEntry]
) -> Iterator[tuple[LogEntry, bytes | None]]:
    """The files in their order, fetched a little early; None for those that are to be streamed."""
    with ThreadPoolExecutor(_FILES_AHEAD, "import-read") as pool:
        pending: deque[tuple[LogEntry, Future[bytes] | None]] = deque()
        try:
            for entry in entries:
                small = entry.size <= _READ_AHEAD
                pending.append((entry, pool.submit(source.read, entry.name) if small else None))
                if len(pending) > _FILES_AHEAD:
                    yield _resolved(*pending.popleft())
            while pending:
                yield _resolved(*pending.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def windows(source: LogSource, entry: LogEntry, data: bytes | None) -> Iterator[memoryview]:
    """The file as parts of whole lines, of bounded size unless a line is longer."""
    if data is None:
        with source.open(entry.name) as stream:
            yield from _streamed(stream)
        return
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + _WINDOW) + 1
        end = end or data.find(b"\n", start) + 1 or len(data)
        yield memoryview(data)[start:end]
        start = end


def checkpoint_actions(source: LogSource, checkpoint: Checkpoint) -> Iterator[list[Action]]:
    """What a checkpoint of any layout tells of the table state, batch by batch.

    Raises MalformedActionError for a torn file, StorageError for a missing sidecar.
    """
    sidecars: list[Sidecar] = []
    for entry in checkpoint.files:
        for batch in _file_actions(source, entry):
            sidecars += [action for action in batch if isinstance(action, Sidecar)]
            yield [a for a in batch if not isinstance(a, Sidecar | CheckpointMetadata)]
    for sidecar in sidecars:
        with source.open(sidecar_name(sidecar.path).name) as stream:
            yield from read_checkpoint_batches(stream)


def why_unreadable(source: LogSource, checkpoint: Checkpoint) -> str | None:
    """Why a checkpoint cannot be read, by a look into each of its files; None if it can."""
    try:
        sidecars: list[Sidecar] = []
        for entry in checkpoint.files:
            for batch in _file_actions(source, entry):
                sidecars += [action for action in batch if isinstance(action, Sidecar)]
        for sidecar in sidecars:
            with source.open(sidecar_name(sidecar.path).name) as stream:
                next(read_checkpoint_batches(stream), None)
    except MirrorAssetsError as exc:
        return exc.message
    return None


def _file_actions(source: LogSource, entry: LogEntry) -> Iterator[list[Action]]:
    if isinstance(entry.path, V2Checkpoint) and entry.path.format == "json":
        yield read_json_checkpoint(source.read(entry.name))
        return
    with source.open(entry.name) as stream:
        yield from read_checkpoint_batches(stream)


def _resolved(entry: LogEntry, data: Future[bytes] | None) -> tuple[LogEntry, bytes | None]:
    return entry, None if data is None else data.result()


def _streamed(stream: BinaryIO) -> Iterator[memoryview]:
    rest = b""
    while block := stream.read(_WINDOW):
        end = block.rfind(b"\n") + 1
        if not end:
            rest += block
            continue
        yield memoryview(rest + block[:end])
        rest = block[end:]
    if rest:
        yield memoryview(rest)
