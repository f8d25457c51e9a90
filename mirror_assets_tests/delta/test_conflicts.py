from __future__ import annotations

import pytest

from mirror_assets.delta.actions import CommitInfo, Txn
from mirror_assets.delta.conflicts import (
    ConflictReason,
    Intent,
    IsolationLevel,
    ReadSet,
    WinningCommit,
    find_conflict,
    find_first_conflict,
    isolation_to_use,
)
from mirror_assets_tests.delta.samples import (
    a_domain,
    a_metadata,
    a_protocol,
    a_remove,
    a_vector,
    an_add,
)

BLIND = CommitInfo({"isBlindAppend": True})
WHOLE = ReadSet(whole_table=True)
DAY_1 = ReadSet(partitions=frozenset({frozenset({("day", "1")})}))
WRITE_SERIALIZABLE = IsolationLevel.WRITE_SERIALIZABLE


def won(*actions):
    return WinningCommit.of(7, actions)


def wants(*actions, **options):
    return Intent.of(actions, **options)


def in_day(path, day):
    return an_add(path, partition_values={"day": day})


@pytest.mark.parametrize(
    "winner",
    [
        won(an_add("x"), BLIND),
        won(an_add("x")),
        won(a_remove("x"), an_add("y")),
        won(Txn(app_id="other", version=1)),
        won(a_domain("other")),
    ],
)
def test_a_blind_append_follows_whatever_happened_to_other_files(winner):
    own = wants(an_add("mine"), Txn(app_id="me", version=1), a_domain("mine"))
    assert own.is_blind_append
    assert find_conflict(own, winner) is None


@pytest.mark.parametrize(
    ("winner", "reason"),
    [
        (won(a_protocol()), ConflictReason.PROTOCOL_CHANGED),
        (won(a_metadata()), ConflictReason.METADATA_CHANGED),
        (won(Txn(app_id="me", version=1)), ConflictReason.CONCURRENT_TRANSACTION),
        (won(a_domain("mine")), ConflictReason.CONCURRENT_DOMAIN_METADATA),
        (won(a_remove("mine")), ConflictReason.CONCURRENT_DELETE_READ),
    ],
)
def test_even_a_blind_append_loses_against_what_changes_its_ground(winner, reason):
    own = wants(an_add("mine"), Txn(app_id="me", version=2), a_domain("mine"))
    conflict = find_conflict(own, winner)
    assert conflict is not None
    assert conflict.reason is reason
    assert (conflict.winning_version, "version 7" in conflict.message) == (7, True)


def test_an_application_id_that_was_only_read_is_depended_on():
    own = wants(an_add("mine"), read=ReadSet(app_ids=frozenset({"me"})))
    assert own.is_blind_append
    conflict = find_conflict(own, won(Txn(app_id="me", version=1)))
    assert conflict is not None
    assert conflict.reason is ConflictReason.CONCURRENT_TRANSACTION


def test_the_row_tracking_domain_is_recomputed_and_does_not_conflict():
    domain = a_domain("delta.rowTracking")
    assert find_conflict(wants(an_add("mine"), domain), won(an_add("x"), domain)) is None


@pytest.mark.parametrize(
    ("read", "winner", "conflicts"),
    [
        (WHOLE, won(an_add("x")), True),
        (WHOLE, won(an_add("x", data_change=False)), False),
        (DAY_1, won(in_day("x", "1")), True),
        (DAY_1, won(in_day("x", "2")), False),
        (ReadSet(files=frozenset({"old"})), won(an_add("x")), False),
    ],
)
def test_rows_added_to_what_was_read_conflict(read, winner, conflicts):
    conflict = find_conflict(wants(a_remove("old"), read=read), winner)
    assert (conflict is not None) == conflicts
    if conflict is not None:
        assert conflict.reason is ConflictReason.CONCURRENT_APPEND


def test_null_and_empty_partition_values_are_one_partition():
    read = ReadSet(partitions=frozenset({frozenset({("day", None)})}))
    assert find_conflict(wants(a_remove("old"), read=read), won(in_day("x", ""))) is not None


@pytest.mark.parametrize(
    ("isolation", "winner", "conflicts"),
    [
        (IsolationLevel.SERIALIZABLE, won(an_add("x"), BLIND), True),
        (WRITE_SERIALIZABLE, won(an_add("x"), BLIND), False),
        (WRITE_SERIALIZABLE, won(an_add("x")), True),
        (IsolationLevel.SNAPSHOT_ISOLATION, won(an_add("x")), False),
    ],
)
def test_the_isolation_level_says_which_appends_matter(isolation, winner, conflicts):
    own = Intent(read=WHOLE, isolation=isolation, removed_paths=frozenset({"old"}))
    assert (find_conflict(own, winner) is not None) == conflicts


def test_a_change_of_metadata_does_not_overlook_blind_appends():
    own = wants(a_metadata(), read=WHOLE, table_isolation=WRITE_SERIALIZABLE)
    assert find_conflict(own, won(an_add("x"), BLIND)) is not None


def test_a_commit_that_claims_to_be_a_blind_append_but_removes_is_none():
    assert not won(a_remove("x"), BLIND).is_blind_append


@pytest.mark.parametrize(
    "read",
    [
        WHOLE,
        ReadSet(files=frozenset({"x"})),
        ReadSet(partitions=frozenset({frozenset({("day", "1")})})),
    ],
)
@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_removing_what_was_read_conflicts_at_every_level(read, isolation):
    own = Intent(read=read, isolation=isolation)
    removed = a_remove("x", partition_values={"day": "1"}, data_change=False)
    conflict = find_conflict(own, won(removed))
    assert conflict is not None
    assert conflict.reason is ConflictReason.CONCURRENT_DELETE_READ


def test_a_removed_file_of_unknown_partition_counts_as_read():
    assert find_conflict(wants(an_add("y"), read=DAY_1), won(a_remove("x"))) is not None


def test_a_file_removed_twice_conflicts_even_with_different_deletion_vectors():
    own = wants(a_remove("x", deletion_vector=a_vector(offset=1)))
    conflict = find_conflict(own, won(a_remove("x")))
    assert conflict is not None
    assert conflict.reason is ConflictReason.CONCURRENT_DELETE_DELETE


def test_the_earliest_winner_decides():
    winners = [WinningCommit.of(5, [an_add("x")]), WinningCommit.of(6, [a_metadata()]), won()]
    conflict = find_first_conflict(wants(an_add("mine")), winners)
    assert conflict is not None
    assert conflict.winning_version == 6


@pytest.mark.parametrize(
    ("actions", "level", "expected"),
    [
        ([an_add(data_change=False)], WRITE_SERIALIZABLE, IsolationLevel.SNAPSHOT_ISOLATION),
        ([an_add(data_change=False)], IsolationLevel.SERIALIZABLE,
         IsolationLevel.SNAPSHOT_ISOLATION),
        ([an_add()], WRITE_SERIALIZABLE, WRITE_SERIALIZABLE),
        ([an_add(data_change=False), a_metadata()], WRITE_SERIALIZABLE, WRITE_SERIALIZABLE),
        ([an_add(data_change=False), a_domain("delta.rowTracking")], WRITE_SERIALIZABLE,
         IsolationLevel.SNAPSHOT_ISOLATION),
        ([], WRITE_SERIALIZABLE, WRITE_SERIALIZABLE),
        ([], IsolationLevel.SERIALIZABLE, IsolationLevel.SNAPSHOT_ISOLATION),
    ],
)  # fmt: skip
def test_a_commit_that_changes_no_data_needs_only_snapshot_isolation(actions, level, expected):
    assert isolation_to_use(actions, level) is expected
