"""Which stores may be written: those that keep their promise, and those an operator answers for.

The first file that a mirror creates in an unknown store is created once more with the same bytes.
A store that accepts that ignores conditions: the mirror refuses it, and remembers so in SQL. With
`single_writer` the operator accepts that only SQL's lease keeps writers apart there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import lru_cache
from pathlib import Path
from typing import Final

import structlog

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import MirrorAssetsError, UnsafeStoreError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.store_facts import StoreFacts, read_store_facts, remember_store
from mirror_assets.mirror.breakers import store_of
from mirror_assets.storage.delegating import DelegatingStore, LookingFirst, ignores_conditions
from mirror_assets.storage.log_store import Created, LogKey, LogStore, Put

#: how long what SQL says of a store is believed
_FRESH_S: Final = 30.0
#: stores kept open; one is a location and its options, so none can become stale
_STORES: Final = 4_096
#: where the promise is our own code's, or the operating system's
_OUR_OWN: Final = ("file://", "memory://")

logger = structlog.get_logger(__name__)


class StoreTrust:
    """What this worker knows of the stores."""

    def __init__(self, metastore: Metastore, endpoint: str | None) -> None:
        self._metastore = metastore
        self._endpoint = endpoint
        self._facts: dict[str, StoreFacts] = {}
        self._read_at = -_FRESH_S

    def require_safe(self, store: str) -> bool:
        """Whether it is known to be safe. Raises UnsafeStoreError if it is known not to be."""
        if time.monotonic() - self._read_at > _FRESH_S:
            self._facts = read_store_facts(self._metastore)
            self._read_at = time.monotonic()
        facts = self._facts.get(store)
        if facts is None or facts.endpoint != self._endpoint:
            return False
        if not facts.safe:
            raise unsafe(store, facts.reason)
        return True

    def remember(self, store: str, *, safe: bool, reason: str = "") -> None:
        """Tell all workers."""
        facts = StoreFacts(
            store=store, endpoint=self._endpoint, safe=safe, found_by="mirror", reason=reason
        )
        self._facts[store] = facts
        remember_store(self._metastore, facts)


class ProvenStore(DelegatingStore):
    """A store that is refused once it has accepted a create over an existing file."""

    def __init__(self, inner: LogStore, trust: StoreTrust) -> None:
        super().__init__(inner)
        self._trust = trust
        self._store = store_of(str(inner.location))

    def put_if_absent(self, path: LogKey, data: bytes, *, mtime_ms: int | None = None) -> Put:
        """See LogStore."""
        is_proven = self._trust.require_safe(self._store)
        put = self.inner.put_if_absent(path, data, mtime_ms=mtime_ms)
        if not is_proven and put == Created() and isinstance(path, CommitName):
            self._prove(path, data)
        return put

    def put_file_if_absent(self, path: LogKey, file: Path) -> Put:
        """See LogStore."""
        self._trust.require_safe(self._store)
        return self.inner.put_file_if_absent(path, file)

    def _prove(self, path: CommitName, data: bytes) -> None:
        try:
            ignores = ignores_conditions(self.inner, path, data)
        except MirrorAssetsError as error:  # busy, or away: the next file will tell
            logger.info("store_not_proven", store=self._store, error=str(error))
            return
        if ignores:
            reason = "a create over an existing file was accepted: it ignores conditions"
            self._trust.remember(self._store, safe=False, reason=reason)
            raise unsafe(self._store, reason)
        if ignores is False:
            self._trust.remember(self._store, safe=True)


def unsafe(store: str, reason: str) -> UnsafeStoreError:
    """The refusal, with both ways out."""
    remedy = (
        "use a store that `mirror-assets verify-store` passes; or accept that only SQL's lease "
        f'keeps writers apart there: set single_writer = ["{store}"], then `mirror-assets resume`'
    )
    return UnsafeStoreError(f"the store {store} is not safe: {reason}", remedy=remedy)


def trusted(
    open_store: Callable[[str], LogStore], trust: StoreTrust, single_writer: Collection[str]
) -> Callable[[str], LogStore]:
    """The same stores, each behind what its trust asks for; they are kept open."""

    @lru_cache(maxsize=_STORES)
    def opened(location: str) -> LogStore:
        store, name = open_store(location), store_of(location)
        if name.startswith(_OUR_OWN):
            return store
        return LookingFirst(store) if name in single_writer else ProvenStore(store, trust)

    return opened
