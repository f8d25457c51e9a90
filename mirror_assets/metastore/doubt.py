"""Trying again what the database did not finish, until it is known what happened."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

import stamina

from mirror_assets.errors import DatabaseUnavailableError, TransientError
from mirror_assets.metastore.dialect import OutcomeUnknownError, RetryableError

Known = TypeVar("Known", covariant=True)  # noqa: PLC0105 - named for what it is

#: tries of one transaction: rolled back, its connection lost, its COMMIT in doubt
_ATTEMPTS: Final = 20
_SECONDS: Final = 60.0
#: tries when the database does not answer at all
_RECONNECTS: Final = 3
WORTH_A_TRY: Final = (RetryableError, OutcomeUnknownError, DatabaseUnavailableError)


class Attempt(Protocol[Known]):
    """A transaction that finds by its commit id what an earlier try has committed."""

    def __call__(self, *, in_doubt: bool) -> Known:
        """`in_doubt`: a COMMIT was sent before, and its answer lost."""


def try_again(
    attempt: Attempt[Known], error: TransientError, *, table: str, commit_id: str
) -> Known:
    """Repeat a transaction that failed with an error that is worth a try.

    Raises OutcomeUnknownError, which names the commit id, where a COMMIT stays in doubt.
    """
    doubts = [error] if isinstance(error, OutcomeUnknownError) else []
    attempts = _ATTEMPTS if doubts or isinstance(error, RetryableError) else _RECONNECTS

    def is_worth_a_try(error: Exception) -> bool:
        if isinstance(error, OutcomeUnknownError):
            doubts.append(error)
        return isinstance(error, WORTH_A_TRY)

    retrying = stamina.RetryingCaller(
        attempts=attempts, timeout=_SECONDS, wait_initial=0.02, wait_max=2
    )
    try:
        return retrying(is_worth_a_try, lambda: attempt(in_doubt=bool(doubts)))
    except WORTH_A_TRY as exc:
        if not doubts:
            raise
        message = f"COMMIT was sent and the database stays away; the commit id is {commit_id}"
        raise OutcomeUnknownError(message, table=table) from exc
