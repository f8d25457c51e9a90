"""The order of one round: groups together, tables in order, nobody waits for ever."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mirror_assets.mirror.publish_order import publish_order


def test_tables_without_a_common_group_are_independent():
    order = publish_order({1: [None, "a"], 2: [None], 3: ["b", "b2"]})

    assert order == [[(1,), (1,)], [(2,)], [(3,), (3,)]]


def test_a_group_is_one_step_after_all_that_comes_before_it():
    order = publish_order({1: [None, None, "g", None], 2: ["g"], 3: [None]})

    assert order == [[(1,), (1,), (1, 2), (1,)], [(3,)]]


def test_groups_that_share_tables_follow_each_other():
    (steps,) = publish_order({1: ["g", "h"], 2: ["g", None], 3: [None, "h"]})

    assert steps.index((1, 2)) < steps.index((1, 3))


def test_groups_that_cross_each_other_are_published_all_the_same():
    (steps,) = publish_order({1: ["g", "h"], 2: ["h", "g"]})

    assert Counter(table for step in steps for table in step) == {1: 2, 2: 2}


@given(st.data())
def test_every_version_is_published_once_and_every_group_at_one_moment(data):
    tables = range(1, data.draw(st.integers(2, 6)))
    history = {table: [] for table in tables}
    for number in range(data.draw(st.integers(0, 12))):
        members = data.draw(st.sets(st.sampled_from(list(tables)), min_size=1))
        for table in members:
            history[table].append(f"g{number}" if len(members) > 1 else None)
    #: a round sees only the beginning of each table's backlog
    seen = {t: groups[: data.draw(st.integers(0, 12))] for t, groups in history.items()}

    order = publish_order(seen)

    put = Counter(table for steps in order for step in steps for table in step)
    assert put == {table: len(groups) for table, groups in seen.items() if groups}
    for steps in order:
        places = {table: iter(seen[table]) for table in tables}
        for step in steps:
            groups = {next(places[table]) for table in step}
            assert len(groups) == 1
            (group,) = groups
            assert set(step) == {t for t, g in seen.items() if group in g} or group is None
