from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_assets.delta.actions import Sidecar
from mirror_assets.delta.sidecar_plan import (
    FileKind,
    Key,
    KeyRange,
    KnownSidecar,
    Part,
    Weight,
    plan_adds,
    plan_removes,
    sidecar_tags,
    target_files,
)

TARGET = 10


def weights(keys: list[Key]) -> list[Weight]:
    """What SQL would count of these keys."""
    by_version: dict[int, list[int]] = {}
    for version, ordinal in sorted(keys):
        by_version.setdefault(version, []).append(ordinal)
    return [Weight(v, len(o), o[0], o[-1]) for v, o in by_version.items()]


def inside(part: Part, keys: set[Key]) -> set[Key]:
    return {key for key in keys if part.within.first <= key <= part.within.last}


def written(part: Part, keys: set[Key]) -> KnownSidecar:
    """The sidecar that a checkpoint makes of a part, as the next one learns of it."""
    if part.kept is not None:
        return part.kept
    tags = sidecar_tags(part, files=len(inside(part, keys)), size_bytes=0, layout="l")
    action = Sidecar(path="s.parquet", size_in_bytes=1, modification_time=1, tags=tags)
    known = KnownSidecar.read(action)
    assert known is not None
    return known


def commits(*sizes: int, first: int = 0) -> list[Key]:
    return [(first + v, o) for v, size in enumerate(sizes) for o in range(size)]


def test_a_sidecar_is_known_again_by_its_tags() -> None:
    part = Part(kind=FileKind.ADD, within=KeyRange((3, -2), (9, 4)), files=5)
    tags = sidecar_tags(part, files=6, size_bytes=77, layout="abc")
    action = Sidecar(path="s.parquet", size_in_bytes=1, modification_time=1, tags=tags)

    known = KnownSidecar.read(action)

    assert known == KnownSidecar(
        action=action, kind=part.kind, within=part.within, files=6, size_bytes=77, layout="abc"
    )


@pytest.mark.parametrize(
    "tags", [None, {}, {"mirrorAssets.kind": "add"}, {"mirrorAssets.kind": None, "x": "y"}]
)
def test_a_foreign_sidecar_is_not_known(tags: dict[str, str | None] | None) -> None:
    action = Sidecar(path="s.parquet", size_in_bytes=1, modification_time=1, tags=tags)

    assert KnownSidecar.read(action) is None


def test_commits_are_gathered_up_to_the_target() -> None:
    parts = plan_adds([], [], weights(commits(5, 5, 9, 9)), TARGET)

    assert [part.within for part in parts] == [
        KeyRange((0, 0), (1, 4)),
        KeyRange((2, 0), (2, 8)),
        KeyRange((3, 0), (3, 8)),
    ]


def test_a_large_commit_is_cut_into_pieces() -> None:
    keys = commits(35)

    parts = plan_adds([], [], weights(keys), TARGET)

    assert len(parts) == 4
    assert [len(inside(part, set(keys))) for part in parts] == [8, 9, 9, 9]


def test_a_sidecar_that_lost_nothing_is_kept_and_another_is_written_anew() -> None:
    keys = set(commits(9, 9, 9))
    first = plan_adds([], [], weights(sorted(keys)), TARGET)
    known = [written(part, keys) for part in first]

    parts = plan_adds(known, [(1, 4)], [], TARGET)

    assert [part.kept is not None for part in parts] == [True, False, True]
    assert [part.files for part in parts] == [9, 8, 9]


def test_a_sidecar_that_lost_everything_vanishes() -> None:
    keys = set(commits(9, 9))
    known = [written(p, keys) for p in plan_adds([], [], weights(sorted(keys)), TARGET)]

    parts = plan_adds(known, commits(9), [], TARGET)

    assert [part.within.first for part in parts] == [(1, 0)]


def test_tombstones_are_kept_while_as_many_stand() -> None:
    keys = set(commits(25, 9))
    known = [written(p, keys) for p in plan_removes([], weights(sorted(keys)), TARGET)]
    assert len(known) == 4

    same = plan_removes(known, weights(sorted(keys)), TARGET)
    fewer = plan_removes(known, weights(sorted(keys - {(1, 3)})), TARGET)

    assert all(part.kept for part in same)
    assert [part.kept is not None for part in fewer] == [True, True, True, False]


def test_tombstones_that_stand_again_are_never_lost_or_told_twice() -> None:
    keys = set(commits(9, 9, 9))
    seen = keys - {(1, o) for o in range(9)}
    known = [written(p, seen) for p in plan_removes([], weights(sorted(seen)), TARGET)]

    parts = plan_removes(known, weights(sorted(keys)), TARGET)

    assert sorted(key for part in parts for key in inside(part, keys)) == sorted(keys)


def test_small_parts_are_merged_ever_more_rarely() -> None:
    known: list[KnownSidecar] = []
    keys: set[Key] = set()
    rewritten = 0
    for version in range(400):
        keys.add((version, 0))
        parts = plan_adds(known, [], [Weight(version, 1, 0, 0)], 100)
        rewritten += sum(part.files for part in parts if part.kept is None)
        known = [written(part, keys) for part in parts]
        assert len(parts) <= 4 + 8
    assert rewritten < 400 * 8


def test_the_target_doubles_when_there_would_be_too_many_sidecars() -> None:
    assert target_files(1_000_000) == target_files(0)
    assert target_files(100_000_000) * 64 >= 100_000_000


@given(st.randoms(use_true_random=False), st.integers(1, 12))
def test_over_any_history_the_parts_hold_the_live_files_once(
    chance: random.Random, checkpoints: int
) -> None:
    alive: set[Key] = set()
    known: list[KnownSidecar] = []
    version, seen = 0, -1
    for _ in range(checkpoints):
        lost: list[Key] = []
        for _ in range(chance.randint(0, 4)):
            gone = chance.sample(sorted(alive), chance.randint(0, len(alive) // 2))
            alive -= set(gone)
            lost += [key for key in gone if key[0] <= seen]
            alive |= {(version, ordinal) for ordinal in range(chance.choice([0, 1, 3, 25]))}
            version += 1
        added = weights([key for key in alive if key[0] > seen])
        parts = plan_adds(known, sorted(lost), added, TARGET)
        held = [key for part in parts for key in inside(part, alive)]
        assert sorted(held) == sorted(alive)
        for part in parts:
            if part.kept is not None:
                assert part.kept.files == len(inside(part, alive))
        known = [written(p, alive) for p in parts if inside(p, alive)]
        seen = version - 1
