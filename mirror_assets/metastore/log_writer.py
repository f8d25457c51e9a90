"""The one way into the metastore: commits that are atomic, gapless and never lost.

A commit locks the heads of its tables in id order, takes the next version of each, and writes the
version, its actions, the effects on older rows and the mirror's order (the outbox) in one SQL
transaction. Whoever read the table is compared with the commits that won since; a blind append
needs no such comparison and no retry.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mirror_assets.delta.actions import Action
from mirror_assets.delta.conflicts import IsolationLevel, ReadSet
from mirror_assets.delta.path_rules import is_storable
from mirror_assets.errors import (
    BackpressureError,
    CommitConflictError,
    RuleViolationError,
    TransientError,
)
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.committing import Committing, ConflictFoundError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.doubt import WORTH_A_TRY, try_again
from mirror_assets.metastore.earlier import found_earlier, read_committed
from mirror_assets.metastore.heads import InForce, lock_head, lock_heads
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.outcomes import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    Conflict,
    Outcome,
    new_commit_id,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backpressure:
    """Limits on the versions that SQL is ahead of the log; None: no limit."""

    warn: int | None = None
    wait: int | None = None
    refuse: int | None = None
    wait_seconds: float = 30.0


@dataclass(slots=True)
class Transaction:
    """Commits to several tables that happen together or not at all, at the end of the block."""

    requests: list[CommitRequest] = field(default_factory=list)
    #: by table, once the block has ended
    outcomes: list[Outcome] = field(default_factory=list)

    def commit(
        self,
        table: str,
        actions: Sequence[Action],
        *,
        read_version: int | None = None,
        reads: ReadSet | None = None,
        isolation: IsolationLevel | None = None,
    ) -> None:
        """Add a table's commit to the transaction."""
        self.requests.append(
            CommitRequest(
                table=table,
                actions=actions,
                read_version=read_version,
                reads=reads or ReadSet(),
                isolation=isolation,
            )
        )


class SqlTxnLogWriter:
    """Commits Delta actions to the metastore."""

    def __init__(
        self,
        metastore: Metastore,
        *,
        engine_info: str = "mirror-assets",
        backpressure: Backpressure | None = None,
    ) -> None:
        self._metastore = metastore
        self._engine_info = engine_info
        self._backpressure = backpressure or Backpressure()
        self._in_force = InForce()

    def commit(
        self,
        table: str,
        actions: Sequence[Action],
        *,
        read_version: int | None = None,
        reads: ReadSet | None = None,
        isolation: IsolationLevel | None = None,
        commit_id: str | None = None,
    ) -> Outcome:
        """Commit the actions as the table's next version.

        The same `commit_id` or the same txn(appId, version) never commits twice. Raises
        RuleViolationError or MalformedActionError before anything is written, TableStateError or
        TableNotFoundError, and DatabaseUnavailableError or OutcomeUnknownError when the database
        stays away.
        """
        request = CommitRequest(
            table=table,
            actions=actions,
            read_version=read_version,
            reads=reads or ReadSet(),
            isolation=isolation,
        )
        return self.commit_all([request], commit_id=commit_id)[0]

    def commit_all(
        self, requests: Sequence[CommitRequest], *, commit_id: str | None = None
    ) -> list[Outcome]:
        """Commit to several tables in one transaction; a conflict of one is the outcome of all."""
        _require_distinct(requests)
        if commit_id is not None and not is_storable(commit_id):
            message = f"the commit id {commit_id!r} holds a NUL or a lone surrogate"
            raise RuleViolationError(message, table=requests[0].table, rule="DL-CI-02")
        warnings = [w for request in requests for w in self._wait_for_mirror(request.table)]
        outcomes = self._until_known(requests, commit_id)
        for outcome in outcomes:
            if isinstance(outcome, Committed):
                outcome.findings.extend(w for w in warnings if w.table == outcome.table)
        return outcomes

    @contextmanager
    def transaction(self, *, commit_id: str | None = None) -> Iterator[Transaction]:
        """Collect commits to several tables; they happen together when the block ends well.

        Raises CommitConflictError if one of them lost: then none happened.
        """
        transaction = Transaction()
        yield transaction
        if not transaction.requests:
            return
        transaction.outcomes = self.commit_all(transaction.requests, commit_id=commit_id)
        for outcome in transaction.outcomes:
            if isinstance(outcome, Conflict):
                raise CommitConflictError(
                    f"{outcome.message} ({outcome.reason})",
                    table=outcome.table,
                    version=outcome.winning_version,
                )

    def _until_known(
        self, requests: Sequence[CommitRequest], commit_id: str | None
    ) -> list[Outcome]:
        """Try until the outcome is known: a COMMIT in doubt is looked up, never repeated."""
        own_id = commit_id or new_commit_id()
        try:
            return self._attempt(requests, own_id, look_up=commit_id is not None)
        except WORTH_A_TRY as error:
            return self._again(requests, own_id, error)

    def _again(
        self, requests: Sequence[CommitRequest], commit_id: str, error: TransientError
    ) -> list[Outcome]:
        """Look the commit id up under the lock of the heads, and commit only if it is not there.

        The lock waits for a transaction that the server has not ended yet, so the answer is final.
        """
        self._in_force.forget()

        def attempt(*, in_doubt: bool) -> list[Outcome]:
            outcomes = self._attempt(requests, commit_id, look_up=True)
            return [self._own(o, commit_id) for o in outcomes] if in_doubt else outcomes

        return try_again(attempt, error, table=requests[0].table, commit_id=commit_id)

    def _own(self, outcome: Outcome, commit_id: str) -> Outcome:
        """What the look-up found after a COMMIT in doubt is what this very call has committed."""
        if not isinstance(outcome, AlreadyCommitted) or outcome.reason != "commit_id":
            return outcome
        with self._metastore.read() as connection:
            return read_committed(connection, outcome.table, outcome.version, commit_id)

    def _attempt(
        self, requests: Sequence[CommitRequest], commit_id: str, *, look_up: bool
    ) -> list[Outcome]:
        statements, is_one = self._metastore.statements, len(requests) == 1
        glance = None
        try:
            with self._metastore.write() as connection:
                if is_one:
                    table, actions = requests[0].table, requests[0].actions
                    known = self._in_force.last_seen(table)
                    head, now_ms, glance = lock_head(statements, connection, table, actions, known)
                    heads = {table: head}
                else:
                    heads, now_ms = lock_heads(statements, connection, (r.table for r in requests))
                looked_up = commit_id if look_up else None
                if earlier := found_earlier(connection, heads, requests, looked_up):
                    return earlier
                committing = Committing(
                    statements=statements,
                    connection=connection,
                    in_force=self._in_force,
                    now_ms=now_ms,
                    commit_id=commit_id,
                    group_id=None if is_one else commit_id,
                    engine_info=self._engine_info,
                    is_all=is_one,
                    glance=glance,
                )
                ordered = sorted(requests, key=lambda r: heads[r.table].table_id)
                done = {r.table: committing.commit(heads[r.table], r) for r in ordered}
                for head in heads.values():
                    self._in_force.see(head)
        except ConflictFoundError as found:
            return [found.conflict]
        return [done[request.table] for request in requests]

    def _wait_for_mirror(self, table: str) -> list[Finding]:
        limits = self._backpressure
        if limits.warn is None and limits.wait is None and limits.refuse is None:
            return []
        deadline = time.monotonic() + limits.wait_seconds
        while True:
            head = LogReader(self._metastore).table(table)
            backlog = head.head_version - head.mirrored_version
            if limits.refuse is not None and backlog >= limits.refuse:
                raise _refused(table, backlog, limits.refuse)
            if limits.wait is None or backlog < limits.wait:
                break
            if time.monotonic() > deadline:
                raise _refused(table, backlog, limits.wait)
            time.sleep(0.05)
        if limits.warn is None or backlog < limits.warn:
            return []
        message = f"{backlog} versions are not mirrored yet"
        return [Finding(rule="MA-107", severity=Severity.WARNING, table=table, message=message)]


def _require_distinct(requests: Sequence[CommitRequest]) -> None:
    names = [request.table for request in requests]
    for name in names:
        if names.count(name) > 1:
            message = "a transaction commits to each table once"
            raise CommitConflictError(message, table=name, remedy="put all its actions together")


def _refused(table: str, backlog: int, limit: int) -> BackpressureError:
    message = f"{backlog} versions wait for the mirror, the limit is {limit}"
    return BackpressureError(message, table=table)
