"""In which order one round publishes its tables: the versions of one group back to back.

Pure. Tables that share no group with another one are independent, and go side by side. A group
whose other tables are not in the round (stopped, or in other hands) makes nobody wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

#: tables of which the next version is published, all at once
Step = tuple[int, ...]


def publish_order(groups: Mapping[int, Sequence[str | None]]) -> list[list[Step]]:
    """Lists of steps; the lists are independent of each other, the steps of one are in order.

    `groups` has for each table the group of every version to be published, oldest first.
    """
    tables_of: defaultdict[str, set[int]] = defaultdict(set)
    for table, of_table in groups.items():
        for group in of_table:
            if group is not None:
                tables_of[group].add(table)
    shared = {group: tables for group, tables in tables_of.items() if len(tables) > 1}
    return [
        _merged({table: groups[table] for table in tables}, shared)
        for tables in _connected(list(groups), shared.values())
    ]


def _connected(tables: Sequence[int], sets: Collection[set[int]]) -> list[list[int]]:
    """Tables that share a set, directly or through others; in the order given."""
    leader = {table: table for table in tables}

    def leader_of(table: int) -> int:
        while leader[table] != table:
            table = leader[table]
        return table

    for joined in sets:
        first = leader_of(min(joined))
        for table in joined:
            leader[leader_of(table)] = first
    found: defaultdict[int, list[int]] = defaultdict(list)
    for table in tables:
        found[leader_of(table)].append(table)
    return list(found.values())


def _merged(
    groups: Mapping[int, Sequence[str | None]], shared: Mapping[str, set[int]]
) -> list[Step]:
    """One list for all: a group is a step as soon as all its tables have come to it."""
    waiting = {
        table: [group if group in shared else None for group in reversed(of_table)]
        for table, of_table in groups.items()
    }
    steps: list[Step] = []
    while any(waiting.values()):
        for table, rest in waiting.items():
            while rest and rest[-1] is None:
                rest.pop()
                steps.append((table,))
        heads = {rest[-1] for rest in waiting.values() if rest}
        ready = [
            tuple(sorted(shared[group]))
            for group in sorted(group for group in heads if group is not None)
            if all(waiting[table][-1:] == [group] for table in shared[group])
        ]
        #: groups that cross each other, as no commit of ours leaves them: nobody waits for ever
        crossed = [(table,) for table, rest in waiting.items() if rest][:1]
        for step in ready or crossed:
            steps.append(step)
            for table in step:
                waiting[table].pop()
    return steps
