"""What a checkpoint holds, counted by decoding it.

A checkpoint that says something else than SQL must never become visible, so what was written is
read again before it is uploaded. Only the members that tell kinds and sizes are decoded of file
actions; everything else is decoded whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirror_assets.delta.actions import ACTION_NAMES, Action
from mirror_assets.delta.checkpoint_rows import KEY_MEMBERS
from mirror_assets.errors import CheckpointMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_READ_AHEAD: Final = 1024 * 1024
_BATCH_ROWS: Final = 8_192
_COUNTS: Final = {
    "txn": "txns",
    "add": "adds",
    "remove": "removes",
    "metaData": "metadatas",
    "protocol": "protocols",
    "domainMetadata": "domains",
    "checkpointMetadata": "checkpoint_metadatas",
    "sidecar": "sidecars",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """Actions by kind, and the sum of the live files' sizes."""

    protocols: int = 0
    metadatas: int = 0
    txns: int = 0
    domains: int = 0
    adds: int = 0
    removes: int = 0
    checkpoint_metadatas: int = 0
    sidecars: int = 0
    size_bytes: int = 0

    @property
    def actions(self) -> int:
        """All of them, as `_last_checkpoint` counts (DL-LCP-03)."""
        return sum(getattr(self, name) for name in _COUNTS.values())

    def __add__(self, other: CheckpointContent) -> CheckpointContent:
        return CheckpointContent(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    def require(self, expected: CheckpointContent) -> None:
        """Raise CheckpointMismatchError unless it is as expected."""
        wrong = [
            f"{f.name} {getattr(self, f.name)} instead of {getattr(expected, f.name)}"
            for f in fields(self)
            if getattr(self, f.name) != getattr(expected, f.name)
        ]
        if wrong:
            message = f"the checkpoint differs from SQL: {', '.join(wrong)}"
            raise CheckpointMismatchError(message, rule="DL-CP-01")


def content_of(actions: Iterable[Action]) -> CheckpointContent:
    """Count actions at hand."""
    found = Counter(_COUNTS[ACTION_NAMES[type(action)]] for action in actions)
    return CheckpointContent(**found)


def count_content(source: BinaryIO, *, schema: pa.Schema | None = None) -> CheckpointContent:
    """Decode a checkpoint's file, or a sidecar, and count; memory is bounded by a batch.

    With `schema`, the file's own must be the same. Raises CheckpointMismatchError for what is not
    a whole Parquet file, for a row with no action or several, and for another schema.
    """
    try:
        file = pq.ParquetFile(source, buffer_size=_READ_AHEAD)
        if schema is not None and not file.schema_arrow.equals(schema):
            raise _unsound("its schema is not the one that was meant to be written")
        names = [name for name in file.schema_arrow.names if name in KEY_MEMBERS]
        columns = [f"{name}.{member}" for name in names for member in _members(name)]
        content = CheckpointContent()
        for batch in file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
            content += _count(batch)
    except (pa.ArrowException, UnicodeDecodeError) as exc:
        raise _unsound(f"it cannot be decoded: {exc}") from exc
    return content


def _members(action: str) -> Iterator[str]:
    yield KEY_MEMBERS[action]
    if action == "add":
        yield "size"


def _count(batch: pa.RecordBatch) -> CheckpointContent:
    found = {}
    size = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        members = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        found[_COUNTS[name]] = len(column) - members[KEY_MEMBERS[name]].null_count
        if name == "add":
            size = pc.sum(members["size"]).as_py() or 0
    if sum(found.values()) != batch.num_rows:
        raise _unsound("a row does not hold exactly one action")
    return CheckpointContent(**found, size_bytes=size)


def _unsound(reason: str) -> CheckpointMismatchError:
    return CheckpointMismatchError(f"the checkpoint is unsound: {reason}", rule="DL-CP-02")
