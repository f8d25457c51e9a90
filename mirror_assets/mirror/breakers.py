"""A circuit breaker per store, shared by all workers through SQL.

A store that keeps failing is left alone for a while, by everybody; then one worker tries, and its
success lets the others in again. pybreaker decides, SQL remembers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from time import monotonic
from typing import Final, NoReturn

import pybreaker

from mirror_assets.delta.locations import normalise_location
from mirror_assets.errors import MirrorAssetsError, StoreUnavailableError
from mirror_assets.metastore.breaker_store import BreakerRow, read_breaker, write_breaker
from mirror_assets.metastore.database import Metastore
from mirror_assets.mirror.resilience import strategy_for

#: how long a state read from SQL is believed
_FRESH_SECONDS: Final = 1.0


class BreakerOpenError(StoreUnavailableError):
    """The store failed too often lately; nobody asks it until the pause is over."""

    code = "MA-405"
    default_remedy = "wait: it is tried again by itself; `mirror-assets status` shows the cause"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Breakers:
    """The breakers of all stores, as this worker sees them."""

    def __init__(
        self, metastore: Metastore, *, failures: int = 5, pause_seconds: float = 15.0
    ) -> None:
        self._metastore = metastore
        self._failures = failures
        self._pause_seconds = pause_seconds
        self._known: dict[str, tuple[pybreaker.CircuitBreaker, _SqlStorage, Lock]] = {}
        self._lock = Lock()

    def is_closed(self, location: str) -> bool:
        """Whether the store is well: what can wait does not try an ailing one."""
        _, storage, _ = self._breaker(store_of(location))
        return storage.state == pybreaker.STATE_CLOSED

    @contextmanager
    def guard(self, location: str) -> Iterator[None]:
        """Run the block if the store may be asked, and count how it ends.

        Raises BreakerOpenError instead of running it while the store is left alone.
        """
        breaker, storage, probing = self._breaker(store_of(location))
        probes = self._admit(storage, probing)
        try:
            yield
        except MirrorAssetsError as error:
            _count(breaker, error)
            raise
        else:
            _succeed(breaker)
        finally:
            if probes:
                probing.release()

    def _admit(self, storage: _SqlStorage, probing: Lock) -> bool:
        """Whether the caller is the one that tries an ailing store."""
        if storage.state == pybreaker.STATE_CLOSED:
            return False
        opened_at = storage.opened_at or datetime.now(UTC)
        rest = self._pause_seconds - (datetime.now(UTC) - opened_at).total_seconds()
        if rest > 0 or not probing.acquire(blocking=False):
            message = f"the store {storage.name} failed {self._failures} times and is left alone"
            raise BreakerOpenError(message, retry_after_s=max(rest, 0.2))
        return True

    def _breaker(self, store: str) -> tuple[pybreaker.CircuitBreaker, _SqlStorage, Lock]:
        with self._lock:
            if store not in self._known:
                storage = _SqlStorage(self._metastore, store)
                breaker = pybreaker.CircuitBreaker(
                    fail_max=self._failures,
                    reset_timeout=self._pause_seconds,
                    state_storage=storage,
                    throw_new_error_on_trip=False,
                    name=store,
                )
                self._known[store] = (breaker, storage, Lock())
            return self._known[store]


def store_of(location: str) -> str:
    """The store that a location belongs to: its bucket or host, or the local disk."""
    place = normalise_location(location)
    return f"{place.scheme}://{place.host}"


def _count(breaker: pybreaker.CircuitBreaker, error: MirrorAssetsError) -> None:
    """Tell the breaker; pybreaker runs calls one after another, so only the outcome is its own."""
    if isinstance(error, BreakerOpenError):
        return
    strategy = strategy_for(error)
    if strategy.opens_breaker:
        breaker.open()
    elif strategy.counts_for_breaker:
        with suppress(MirrorAssetsError, pybreaker.CircuitBreakerError):
            breaker.call(_raise, error)
    else:
        _succeed(breaker)


def _succeed(breaker: pybreaker.CircuitBreaker) -> None:
    """Tell the breaker; one that others opened meanwhile stays open."""
    with suppress(pybreaker.CircuitBreakerError):
        breaker.call(lambda: None)


def _raise(error: MirrorAssetsError) -> NoReturn:
    raise error


class _SqlStorage(pybreaker.CircuitBreakerStorage):
    """pybreaker's memory in SQL; read again after a second, written when something changes."""

    def __init__(self, metastore: Metastore, store: str) -> None:
        super().__init__(store)
        self._metastore = metastore
        self._row = BreakerRow(store=store)
        self._read_at = -_FRESH_SECONDS
        #: how far the database's clock, by which times are kept, is before this host's
        self._ahead_ms = 0
        self._successes = 0

    @property
    def state(self) -> str:
        return self._fresh().state

    @state.setter
    def state(self, state: str) -> None:
        self._write(state=state)

    @property
    def counter(self) -> int:
        return self._fresh().failures

    @property
    def success_counter(self) -> int:
        return self._successes

    @property
    def opened_at(self) -> datetime | None:
        opened_at_ms = self._fresh().opened_at_ms
        if opened_at_ms is None:
            return None
        return datetime.fromtimestamp((opened_at_ms - self._ahead_ms) / 1000, UTC)

    @opened_at.setter
    def opened_at(self, moment: datetime) -> None:
        self._fresh()
        self._write(opened_at_ms=int(moment.timestamp() * 1000) + self._ahead_ms)

    def increment_counter(self) -> None:
        self._write(failures=self._fresh().failures + 1)

    def reset_counter(self) -> None:
        if self._fresh().failures:
            self._write(failures=0)

    def increment_success_counter(self) -> None:
        self._successes += 1

    def reset_success_counter(self) -> None:
        self._successes = 0

    def _fresh(self) -> BreakerRow:
        if monotonic() - self._read_at > _FRESH_SECONDS:
            self._row, now_ms = read_breaker(self._metastore, self.name)
            self._ahead_ms = now_ms - _host_ms()
            self._read_at = monotonic()
        return self._row

    def _write(self, **changes: str | int) -> None:
        row = replace(self._fresh(), **changes)  # type: ignore[arg-type] # the fields' own types
        if row != self._row:
            self._row = replace(row, updated_at_ms=_host_ms() + self._ahead_ms)
            write_breaker(self._metastore, self._row)


def _host_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
