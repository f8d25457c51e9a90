"""The partition keys of the commits: one per version, pruned to what a person can look at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import dagster as dg

from mirror_assets.defs.keys import KEPT_KEYS, TableKeys
from mirror_assets.metastore.mirror_state import MirrorState

#: keys added or removed for one table in one go
_AT_ONCE: Final = 5_000


def add_new_keys(
    instance: dg.DagsterInstance,
    states: list[MirrorState],
    known: Mapping[str, int],
    *,
    seconds: float = 2.0,
) -> dict[str, int]:
    """Add the versions above those known; by table, the newest version with a key.

    Ascending, because a range of partitions follows the order in which they were added. What is
    not done after `seconds` is left to the next tick.
    """
    reached = {}
    deadline = time.monotonic() + seconds
    for state in states:
        newest = known.get(state.table, -1)
        if state.head_version > newest and time.monotonic() < deadline:
            first = max(newest + 1, oldest_kept(state))
            last = min(state.head_version, first + _AT_ONCE - 1)
            keys = [str(version) for version in range(first, last + 1)]
            instance.add_dynamic_partitions(TableKeys(state.table).versions, keys)
            newest = last
        reached[state.table] = min(newest, state.head_version)
    return reached


def prune_keys(instance: dg.DagsterInstance, state: MirrorState, *, at_most: int) -> list[str]:
    """Remove keys of published versions but for the newest; their events stay."""
    name = TableKeys(state.table).versions
    oldest = oldest_kept(state)
    old = [key for key in instance.get_dynamic_partitions(name) if int(key) < oldest]
    removed = sorted(old, key=int)[:at_most]
    for key in removed:
        instance.delete_dynamic_partition(name, key)
    return removed


def oldest_kept(state: MirrorState) -> int:
    """Of the newest thousand, and of all that is not published."""
    return max(0, min(state.head_version - KEPT_KEYS, state.mirrored_version) + 1)
