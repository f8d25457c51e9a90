"""Prepared statements in one round trip to PostgreSQL: libpq's pipeline, without cursors.

A cursor waits for BEGIN, for every statement and for COMMIT, and spends more on each than the
server does. Here they are sent together and their answers read together: a commit of one file
waits for the server twice. Values travel as text, whose types the statement itself tells.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from mirror_assets.metastore.dialect import Prepared, Row, Step

_IDLE: Final = TransactionStatus.IDLE
_ANSWERS: Final = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
_ABORTED: Final = ExecStatus.PIPELINE_ABORTED


class Session:
    """What one connection has prepared."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._transformer = Transformer(connection)
        self._names: dict[Prepared, bytes] = {}
        self._numbers = count(1)

    @property
    def is_closed(self) -> bool:
        """Whether the connection is gone."""
        return self._connection.closed

    def run(self, steps: Sequence[Step], *, commit: bool = False) -> list[list[Row]]:
        """Execute the statements in their order, in a transaction; the rows of each.

        With `commit` the transaction ends, unless one of them failed. Raises the driver's error of
        the first that did, and its OperationalError if the connection was lost.
        """
        if self._connection.closed:
            raise psycopg.OperationalError("the connection is closed")
        pgconn, known = self._connection.pgconn, len(self._names)
        dump = self._transformer.dump_sequence
        texts = [dump(values, [PyFormat.TEXT] * len(values)) for _, values in steps]
        try:
            pgconn.enter_pipeline_mode()
            wanted = self._send(pgconn, steps, texts, commit=commit)
            pgconn.pipeline_sync()
            answers = _answers(pgconn, len(wanted))
            pgconn.exit_pipeline_mode()
        except BaseException:  # nobody knows what the server is about to say: hang up
            self._connection.close()
            raise
        try:
            _raise_first(answers)
        except psycopg.Error:
            self._forget_after(known)
            raise
        return [
            self._rows(answer) if statement.returns_rows else []
            for statement, answer in zip(wanted, answers, strict=True)
            if statement is not None
        ]

    def _send(
        self,
        pgconn: PGconn,
        steps: Sequence[Step],
        texts: Sequence[Sequence[Buffer | None]],
        *,
        commit: bool,
    ) -> list[Prepared | None]:
        """Queue everything; for each answer to come, the statement that it belongs to."""
        wanted: list[Prepared | None] = []
        if pgconn.transaction_status == _IDLE:
            pgconn.send_query_params(b"BEGIN", None)
            wanted.append(None)
        for (statement, _), values in zip(steps, texts, strict=True):
            if statement not in self._names:
                self._prepare(pgconn, statement)
                wanted.append(None)
            pgconn.send_query_prepared(self._names[statement], values)
            wanted.append(statement)
        if commit:
            pgconn.send_query_params(b"COMMIT", None)
            wanted.append(None)
        return wanted

    def _prepare(self, pgconn: PGconn, statement: Prepared) -> None:
        name = b"mirror_assets_%d" % next(self._numbers)
        pgconn.send_prepare(name, statement.sql.encode())
        self._names[statement] = name

    def _forget_after(self, known: int) -> None:
        """What was to be prepared behind the statement that failed does not exist."""
        while len(self._names) > known:
            self._names.popitem()

    def _rows(self, answer: PGresult) -> list[Row]:
        self._transformer.set_pgresult(answer)
        return self._transformer.load_rows(0, answer.ntuples, tuple)


def _answers(pgconn: PGconn, number: int) -> list[PGresult]:
    """Read so many answers, and the one that ends the pipeline."""
    answers: list[PGresult] = []
    for _ in range(2 * number + 1):  # nothing follows each answer, but for the last
        if pgconn.is_busy():
            _wait(pgconn)
        if (answer := pgconn.get_result()) is not None:
            answers.append(answer)
    if pgconn.status != ConnStatus.OK:  # what it said last tells why, if it said anything
        _raise_first(answers)
        raise psycopg.OperationalError(pgconn.get_error_message())
    return answers[:number]


def _wait(pgconn: PGconn) -> None:
    """Until a result is there; what is not sent yet is sent meanwhile, and Python not held up."""
    poll = select.poll()
    unsent = pgconn.flush()
    poll.register(pgconn.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
    while pgconn.is_busy():
        poll.poll()
        pgconn.consume_input()
        if unsent and not (unsent := pgconn.flush()):
            poll.modify(pgconn.socket, select.POLLIN)


def _raise_first(answers: Sequence[PGresult]) -> None:
    for answer in answers:
        if answer.status not in _ANSWERS:
            if answer.status == _ABORTED:
                raise psycopg.errors.PipelineAborted("an earlier statement failed")
            raise error_from_result(answer)
