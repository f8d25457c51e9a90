"""`_last_checkpoint`: moved last, atomically, and never backwards."""

from __future__ import annotations

from typing import Final

from mirror_assets.delta.last_checkpoint import (
    CheckpointHint,
    encode_hint,
    parse_last_checkpoint,
)
from mirror_assets.delta.log_paths import LastCheckpoint
from mirror_assets.errors import StoreUnavailableError
from mirror_assets.storage.log_store import LogStore, Replaced

_ATTEMPTS: Final = 5


def read_pointer(store: LogStore) -> CheckpointHint | None:
    """What it says; None where there is none that can be read."""
    return _hint(store.read(LastCheckpoint()))


def move_pointer(store: LogStore, hint: CheckpointHint) -> bool:
    """Point at a checkpoint that is there and verified; whether the file was written.

    A pointer to this version or a later one is left alone. Others may move it at the same time:
    what was read decides, and is compared again by the store when it writes.
    """
    for _ in range(_ATTEMPTS):
        seen = store.read(LastCheckpoint())
        known = _hint(seen)
        if known is not None and known.version >= hint.version:
            return False
        if isinstance(store.replace(LastCheckpoint(), encode_hint(hint), over=seen), Replaced):
            return True
    message = "others kept moving _last_checkpoint"
    raise StoreUnavailableError(message, version=hint.version)


def _hint(data: bytes | None) -> CheckpointHint | None:
    parsed = None if data is None else parse_last_checkpoint(data)
    return parsed if isinstance(parsed, CheckpointHint) else None
