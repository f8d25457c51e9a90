"""A process that commits and may be killed at any moment.

It makes `count` commits, each of one file to the first table and, every fourth time, to all the
tables in one transaction. Before each it notes its intent in a log, forced to disk; after it was
told the outcome, the acknowledgement. Started again, it first asks for the outcome of its last
intent, then goes on: what a careful client does.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from mirror_assets.errors import TransientError
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets.metastore.outcomes import AlreadyCommitted, CommitRequest, Committed, Outcome
from mirror_assets_tests.builders import add

PATIENCE_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One commit of a committer: its id is also the name of the file it adds."""

    commit_id: str
    tables: tuple[str, ...]

    def requests(self) -> list[CommitRequest]:
        return [CommitRequest(table=t, actions=[add(self.commit_id)]) for t in self.tables]


def work_of(name: str, number: int, tables: list[str]) -> Work:
    """The commit `number` of a committer, the same whenever it is asked for."""
    order = random.Random(f"{name}-{number}")
    in_all = number % 4 == 3
    chosen = order.sample(tables, len(tables)) if in_all else tables[:1]
    return Work(commit_id=f"{name}-{number}", tables=tuple(chosen))


def read_log(path: Path) -> tuple[list[int], list[int]]:
    """The numbers of the intents and of the acknowledgements; a torn last line says nothing."""
    text = path.read_text() if path.exists() else ""
    lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    intents = [int(number) for word, number in lines if word == "intent"]
    return intents, [int(number) for word, number in lines if word == "done"]


def main(url: str, log: Path, name: str, count: int, tables: list[str]) -> None:
    metastore = Metastore.open(url)
    writer = SqlTxnLogWriter(metastore)
    intents, done = read_log(log)
    unanswered = sorted(set(intents) - set(done))
    following = range(max(intents, default=-1) + 1, count)
    with log.open("a") as file:
        for number in [*unanswered, *following]:
            if number not in unanswered:
                _note(file, f"intent {number}\n", durable=True)
            for outcome in _commit(writer, work_of(name, number, tables)):
                assert isinstance(outcome, Committed | AlreadyCommitted), outcome
            _note(file, f"done {number}\n", durable=False)
    metastore.close()


def _commit(writer: SqlTxnLogWriter, work: Work) -> list[Outcome]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return writer.commit_all(work.requests(), commit_id=work.commit_id)
        except TransientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _note(file: object, line: str, *, durable: bool) -> None:
    # a killed process loses nothing that the kernel has; only the intent must outlive a machine
    file.write(line)  # type: ignore[attr-defined]
    file.flush()  # type: ignore[attr-defined]
    if durable:
        os.fsync(file.fileno())  # type: ignore[attr-defined]
