"""What to do about a failure: how long to wait, when to stop, and what to call it.

Decided by the type of the error alone. A wait grows with every failure in a row and is drawn from
its whole range (full jitter), so that many workers do not come back together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from mirror_assets.errors import (
    ClockSkewError,
    CommitIntegrityError,
    DivergenceError,
    LocationError,
    LogGapError,
    MalformedActionError,
    MirrorAheadError,
    MirrorAssetsError,
    StorageFullError,
    StoreAuthError,
    StoreConfigError,
    StoreThrottledError,
    StoreUnavailableError,
    TlsError,
    UnsafeStoreError,
)
from mirror_assets.findings import Severity
from mirror_assets.metastore.mirror_queue import Failure

QUICKLY: Final = (500, 60_000)
SLOWLY: Final = (15_000, 300_000)
THROTTLED_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How a class of failures is met."""

    reason_code: str
    severity: Severity
    #: first and longest wait before the next try, in ms; it doubles with each failure in a row
    waits: tuple[int, int] = QUICKLY
    #: the named state in which the table stops, for a person to decide
    stop_state: str | None = None
    #: whether it tells something about the store, and whether one such failure is enough
    counts_for_breaker: bool = False
    opens_breaker: bool = False


STRATEGIES: Final[dict[type[MirrorAssetsError], Strategy]] = {
    StoreUnavailableError: Strategy(
        reason_code="transient", severity=Severity.WARNING, counts_for_breaker=True
    ),
    StoreThrottledError: Strategy(
        reason_code="throttled", severity=Severity.WARNING, counts_for_breaker=True
    ),
    StoreAuthError: Strategy(
        reason_code="auth",
        severity=Severity.ERROR,
        counts_for_breaker=True,
        opens_breaker=True,
        waits=SLOWLY,
    ),
    ClockSkewError: Strategy(
        reason_code="clock_skew",
        severity=Severity.ERROR,
        counts_for_breaker=True,
        opens_breaker=True,
        waits=SLOWLY,
    ),
    TlsError: Strategy(
        reason_code="tls",
        severity=Severity.ERROR,
        counts_for_breaker=True,
        opens_breaker=True,
        waits=SLOWLY,
    ),
    StoreConfigError: Strategy(reason_code="config", severity=Severity.ERROR, waits=SLOWLY),
    LocationError: Strategy(reason_code="config", severity=Severity.ERROR, waits=SLOWLY),
    StorageFullError: Strategy(reason_code="storage_full", severity=Severity.ERROR, waits=SLOWLY),
    LogGapError: Strategy(reason_code="gap", severity=Severity.ERROR, waits=SLOWLY),
    UnsafeStoreError: Strategy(
        reason_code="store_unsafe", severity=Severity.ERROR, stop_state="PAUSED"
    ),
    DivergenceError: Strategy(
        reason_code="conflict_external", severity=Severity.ERROR, stop_state="DIVERGED"
    ),
    MirrorAheadError: Strategy(
        reason_code="mirror_ahead", severity=Severity.ERROR, stop_state="AHEAD"
    ),
    CommitIntegrityError: Strategy(
        reason_code="poison", severity=Severity.ERROR, stop_state="QUARANTINED"
    ),
    MalformedActionError: Strategy(
        reason_code="poison", severity=Severity.ERROR, stop_state="QUARANTINED"
    ),
}
_UNKNOWN: Final = Strategy(reason_code="unknown", severity=Severity.ERROR, waits=SLOWLY)


def strategy_for(error: MirrorAssetsError) -> Strategy:
    """How the failure is met: that of its class, or of the nearest one above."""
    found = (STRATEGIES.get(kind) for kind in type(error).__mro__)
    return next((strategy for strategy in found if strategy is not None), _UNKNOWN)


def failure_of(error: MirrorAssetsError, version: int, failures: int) -> Failure:
    """What is recorded of an error, after `failures` in a row before it."""
    strategy = strategy_for(error)
    return Failure(
        version=version,
        reason_code=strategy.reason_code,
        message=str(error),
        retry_in_ms=wait_ms(strategy.waits, failures, least_ms=_asked_for_ms(error)),
        stop_state=strategy.stop_state,
        remedy=error.remedy,
        needs_a_person=strategy.severity is Severity.ERROR,
        is_of_store=strategy.counts_for_breaker,
    )


def wait_ms(waits: tuple[int, int], failures: int, *, least_ms: int = 0) -> int:
    """A wait drawn from the whole range up to the bound that the failures have reached."""
    first_ms, longest_ms = waits
    bound_ms = min(longest_ms, first_ms * 2 ** min(failures, 20))
    return max(least_ms, random.randint(first_ms // 5, bound_ms))  # noqa: S311 - jitter, no secret


def _asked_for_ms(error: MirrorAssetsError) -> int:
    """How long the store, or its breaker, asked to be left alone.

    The client does not pass the Retry-After header on, only the body of an answer: a store that
    throttles without a number in it gets at least a second.
    """
    seconds = getattr(error, "retry_after_s", None)
    if seconds is None:
        return THROTTLED_MS if isinstance(error, StoreThrottledError) else 0
    return int(seconds * 1000)
