"""The register of kinds of damage, and the changes that several of them make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirror_assets.delta.log_paths import CommitName
from mirror_assets_tests.conformance.logs import HEAD, MemoryLog, Row

Damage = Callable[[MemoryLog], bool | None]
#: name of each kind, the rule that finds it, and what does it
DAMAGES: dict[str, tuple[str, Damage]] = {}
LAST = CommitName(HEAD).name
POINTER = "_last_checkpoint"


def damage(rule: str) -> Callable[[Damage], Damage]:
    def register(function: Damage) -> Damage:
        DAMAGES[function.__name__] = (rule, function)
        return function

    return register


def setting(**members: Any) -> Callable[[Row], None]:
    """A change that sets members; None takes one away."""

    def change(body: Row) -> None:
        for name, value in members.items():
            if value is None:
                body.pop(name, None)
            else:
                body[name] = value

    return change


def without(log: MemoryLog, version: int, action: str) -> bool:
    if CommitName(version).name not in log.files:
        return False
    lines = log.lines(version)
    log.put(version, [line for line in lines if action not in line])
    return any(action in line for line in lines)


def twice(log: MemoryLog, version: int, action: str) -> bool:
    if CommitName(version).name not in log.files:
        return False
    lines = log.lines(version)
    again = [line for line in lines if action in line]
    log.put(version, lines + again)
    return bool(again)


def set_protocol(log: MemoryLog, *, reader: int | None = None, **members: Any) -> bool:
    def change(protocol: Row) -> None:
        protocol.clear()
        protocol.update({"minReaderVersion": reader or 1, "minWriterVersion": 2, **members})

    return CommitName(0).name in log.files and log.edit(0, "protocol", change)


def has_history(log: MemoryLog) -> bool:
    return CommitName(0).name in log.files
