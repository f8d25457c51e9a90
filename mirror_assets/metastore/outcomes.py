"""What a writer asks for, and what it is told."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from mirror_assets.delta.actions import Action
from mirror_assets.delta.conflicts import ConflictReason, IsolationLevel, ReadSet
from mirror_assets.findings import Finding

_62_BITS: Final = (1 << 62) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Actions for one table, and what they depend on.

    Without a read version they are judged against the head. `reads` tells what the writer looked
    at there: left empty, a commit that only adds files is a blind append.
    """

    table: str
    actions: Sequence[Action]
    read_version: int | None = None
    reads: ReadSet = field(default_factory=ReadSet)
    isolation: IsolationLevel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The actions are version `version` of the table."""

    table: str
    version: int
    commit_id: str
    timestamp_ms: int
    sha256: str
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """An earlier try with the same commit id or application version did it; nothing was added."""

    table: str
    version: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Another commit won; nothing was written. Read again from `winning_version`, then repeat."""

    table: str
    winning_version: int
    reason: ConflictReason
    message: str


Outcome = Committed | AlreadyCommitted | Conflict


def new_commit_id() -> str:
    """A commit id that nobody else has: a UUID of version 7, ordered by time as indexes like it."""
    random = int.from_bytes(os.urandom(10))
    milliseconds = time.time_ns() // 1_000_000
    bits = milliseconds << 80 | 0x7 << 76 | (random >> 68) << 64 | 0b10 << 62 | random & _62_BITS
    digits = f"{bits:032x}"
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts)
