"""What happened in a store, operation by operation, and what must never have happened.

A history is recorded in front of an S3 server or below a directory, and judged by `violations`:
every commit file was created once, with one content, after the one before it; a checkpoint came
after its commit file, and the pointer after the checkpoint that it names; nothing was deleted,
nothing else was written.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COMMIT = re.compile(r"(\d{20})\.json")
_OTHERS = re.compile(r"(\d{20})\.(crc|checkpoint\.parquet)")
POINTER = "_last_checkpoint"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One write of a file, or its removal, in the time from `began` to `ended`."""

    began: float
    ended: float
    #: "create" never replaces, "replace" may, "delete" removes
    kind: str
    table: str
    name: str
    #: SHA-256 of what was sent or found
    sha256: str = ""
    #: whether the store did it
    done: bool = True
    #: of the pointer
    body: bytes = b""


def violations(history: Iterable[Operation]) -> list[str]:
    """Everything that must not have happened; each says what and where."""
    tables: defaultdict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        tables[operation.table].append(operation)
    return [f"{table}: {found}" for table in sorted(tables) for found in _of_table(tables[table])]


def created(history: Iterable[Operation]) -> dict[tuple[str, int], str]:
    """The digest of every commit file that came to be, by table and version."""
    return {
        (operation.table, int(match[1])): operation.sha256
        for operation in history
        if operation.done and (match := _COMMIT.fullmatch(operation.name))
    }


def _of_table(history: list[Operation]) -> Iterator[str]:
    yield from _unwanted(history)
    commits = _by_version(history, _COMMIT)
    others = _by_version(history, _OTHERS)
    there_since: dict[int, float] = {}
    for version in sorted(commits):
        done = [operation for operation in commits[version] if operation.done]
        if len(done) != 1:
            yield f"version {version} was created {len(done)} times"
        if len({operation.sha256 for operation in commits[version]}) > 1:
            yield f"version {version} was offered with several contents"
        if done:
            there_since[version] = min(operation.ended for operation in done)
        first = min(operation.began for operation in commits[version])
        if version > 0 and there_since.get(version - 1, float("inf")) > first:
            yield f"version {version} was written before version {version - 1} was there"
    for version, operations in others.items():
        for operation in operations:
            if operation.began < there_since.get(version, float("inf")):
                yield f"{operation.name} was written before its commit file"
    yield from _pointers(history)


def _unwanted(history: list[Operation]) -> Iterator[str]:
    for operation in history:
        if operation.kind == "delete":
            yield f"{operation.name} was deleted"
        known = _COMMIT.fullmatch(operation.name) or _OTHERS.fullmatch(operation.name)
        if not known and operation.name != POINTER:
            yield f"{operation.name} has no place in a log"
        if known and operation.kind == "replace":
            yield f"{operation.name} was written without the condition that it is absent"


def _pointers(history: list[Operation]) -> Iterator[str]:
    checkpoints = {
        operation.name: operation.ended
        for operation in history
        if operation.done and "checkpoint.parquet" in operation.name
    }
    for operation in history:
        if operation.name == POINTER and operation.body:
            version = json.loads(operation.body)["version"]
            name = f"{version:020}.checkpoint.parquet"
            if operation.began < checkpoints.get(name, float("inf")):
                yield f"the pointer named {name} before it was there"


def _by_version(history: list[Operation], pattern: re.Pattern[str]) -> dict[int, list[Operation]]:
    found: defaultdict[int, list[Operation]] = defaultdict(list)
    for operation in history:
        if match := pattern.fullmatch(operation.name):
            found[int(match[1])].append(operation)
    return found
