"""What a commit file costs a reader, measured: one of each store is fetched and decoded.

A reader fetches and decodes every commit since the newest checkpoint. How long that takes is a
matter of the store, as long as the files are small; many bytes make a checkpoint due by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from mirror_assets.delta.commit_file import decode
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.mirror.breakers import store_of
from mirror_assets.storage.log_store import LogStore

#: how long a measurement is believed
_FRESH_S: Final = 600.0
#: a larger one tells of its bytes
_LARGEST: Final = 4 * 1024 * 1024


class ReaderCosts:
    """The cost per commit, by store, as this process measured it last."""

    def __init__(self, open_store: Callable[[str], LogStore]) -> None:
        self._open_store = open_store
        self._known: dict[str, tuple[float, float]] = {}

    def commit_ms(self, location: str, version: int, *, size: int) -> float:
        """To fetch and decode a commit like this one; 0 where that cannot be measured."""
        store = store_of(location)
        cost, again_at = self._known.get(store, (0.0, 0.0))
        if time.monotonic() >= again_at and size <= _LARGEST:
            cost = self._measure(location, version)
            self._known[store] = (cost, time.monotonic() + _FRESH_S)
        return cost

    def _measure(self, location: str, version: int) -> float:
        began = time.perf_counter()
        try:
            data = self._open_store(location).read(CommitName(version))
            if data is None:
                return 0.0
            decode(data)
        except MirrorAssetsError:  # the mirror and the reconciler meet it too, and tell it
            return 0.0
        return (time.perf_counter() - began) * 1000
