"""The judge of histories finds what must not happen."""

from __future__ import annotations

from typing import Any

import pytest

from mirror_assets_tests.faults.store_history import POINTER, Operation, created, violations

V0, V1, V2 = (f"{version:020}.json" for version in range(3))
CHECKPOINT = f"{1:020}.checkpoint.parquet"


def op(at: float, name: str, kind: str = "create", **members: Any) -> Operation:
    standard = {"began": at, "ended": at + 0.5, "kind": kind, "table": "t", "name": name}
    return Operation(**standard | {"sha256": name} | members)


CLEAN = [
    op(0, V0),
    op(1, V1),
    op(2, V1, done=False),
    op(3, CHECKPOINT),
    op(4, POINTER, "replace", body=b'{"version":1}'),
    op(5, V2),
]


def test_a_clean_history_is_clean() -> None:
    assert violations(CLEAN) == []
    assert created(CLEAN) == {("t", 0): V0, ("t", 1): V1, ("t", 2): V2}


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([*CLEAN, op(6, V1)], "created 2 times"),
        ([*CLEAN, op(6, V1, done=False, sha256="x")], "several contents"),
        ([op(0, V0), op(0.2, V1)], "before version 0 was there"),
        ([op(0, V0), op(1, V2)], "before version 1 was there"),
        ([*CLEAN, op(6, V0, "delete")], "deleted"),
        ([*CLEAN, op(6, "data.parquet")], "no place"),
        ([op(0, V0, "replace")], "without the condition"),
        ([op(0, V0), op(1, CHECKPOINT), op(2, V1)], "before its commit file"),
        ([*CLEAN[:3], op(3, POINTER, "replace", body=b'{"version":1}')], "before it was there"),
    ],
)
def test_what_must_not_happen_is_found(history: list[Operation], words: str) -> None:
    assert any(words in found for found in violations(history))
