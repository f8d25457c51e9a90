"""Who loses when two commits meet in SQL, and what the loser is told."""

from __future__ import annotations

import pytest

from mirror_assets.delta.actions import CommitInfo
from mirror_assets.delta.conflicts import ConflictReason, IsolationLevel, ReadSet
from mirror_assets.delta.features import protocol_with
from mirror_assets.errors import RuleViolationError
from mirror_assets.metastore.outcomes import Committed, Conflict
from mirror_assets_tests.builders import a_table, add, changed, commit, paths, remove, txn
from mirror_assets_tests.delta.samples import a_domain, a_vector, stats_of

WHOLE = ReadSet(whole_table=True)
SERIALIZABLE, WRITE_SERIALIZABLE = IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE


def in_day(day):
    return ReadSet(partitions=frozenset({frozenset({("day", day)})}))


def on(day, path):
    return add(path, partition_values={"day": day})


def test_blind_appends_rebase_over_everything_that_only_touches_files(metastore, writer):
    table = a_table(metastore)
    commit(metastore, table, add("a"), add("b"))
    commit(metastore, table, remove("a"), add("c"))
    outcome = writer.commit(table, [add("d")], read_version=0)
    assert isinstance(outcome, Committed)
    assert outcome.version == 3


@pytest.mark.parametrize("actions", [[add("d")], [remove("a")], [txn("app", 1)]])
@pytest.mark.parametrize("change", ["metadata", "protocol"])
def test_a_changed_table_conflicts_with_whatever_was_prepared_before(
    metastore, writer, reader, change, actions
):
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    summary = reader.summary(table)
    if change == "metadata":
        commit(metastore, table, changed(summary.metadata, owner="me"))
    else:
        commit(metastore, table, protocol_with(summary.protocol, ["v2Checkpoint"]))
    commit(metastore, table, add("b"))
    outcome = writer.commit(table, actions, read_version=1)
    assert isinstance(outcome, Conflict)
    assert (outcome.table, outcome.winning_version) == (table, 2)
    assert outcome.reason == f"{change}_changed"
    assert "version 2" in outcome.message
    assert reader.table(table).head_version == 3


def test_the_earliest_winner_is_named(metastore, writer):
    table = a_table(metastore)
    commit(metastore, table, add("a"), add("b"))
    commit(metastore, table, add("c"))
    commit(metastore, table, remove("a"))
    commit(metastore, table, remove("b"))
    outcome = writer.commit(table, [remove("a"), remove("b"), add("ab")], read_version=1)
    assert isinstance(outcome, Conflict)
    assert outcome.winning_version == 3
    assert outcome.reason is ConflictReason.CONCURRENT_DELETE_DELETE


def test_a_file_that_was_read_and_is_gone_conflicts(metastore, writer):
    table = a_table(metastore)
    commit(metastore, table, add("a"), add("b"))
    commit(metastore, table, remove("a"))
    reads = ReadSet(files=frozenset({"a"}))
    outcome = writer.commit(table, [add("c")], read_version=1, reads=reads)
    assert isinstance(outcome, Conflict)
    assert outcome.reason is ConflictReason.CONCURRENT_DELETE_READ
    other = ReadSet(files=frozenset({"b"}))
    assert isinstance(writer.commit(table, [add("c")], read_version=1, reads=other), Committed)


def test_only_commits_since_the_read_version_matter(metastore, writer):
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    commit(metastore, table, remove("a"))
    assert isinstance(writer.commit(table, [add("b")], read_version=2, reads=WHOLE), Committed)
    assert isinstance(writer.commit(table, [remove("c"), add("d")], reads=WHOLE), Committed)


@pytest.mark.parametrize(
    ("level", "winner_is_blind", "loses"),
    [
        (SERIALIZABLE, True, True),
        (SERIALIZABLE, False, True),
        (WRITE_SERIALIZABLE, True, False),
        (WRITE_SERIALIZABLE, False, True),
    ],
)
def test_appends_matter_as_the_isolation_level_says(
    metastore, writer, level, winner_is_blind, loses
):
    table = a_table(metastore, configuration={"delta.isolationLevel": level.value})
    commit(metastore, table, add("a"))
    reads = ReadSet() if winner_is_blind else WHOLE
    commit(metastore, table, add("b"), reads=reads)
    outcome = writer.commit(table, [remove("a"), add("c")], read_version=1, reads=WHOLE)
    assert isinstance(outcome, Conflict if loses else Committed)
    if isinstance(outcome, Conflict):
        assert outcome.reason is ConflictReason.CONCURRENT_APPEND


def test_the_level_of_a_commit_overrides_that_of_the_table(metastore, writer, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    commit(metastore, table, add("b"))
    change = [remove("a"), add("c")]
    arguments = {"read_version": 1, "reads": WHOLE}
    assert isinstance(writer.commit(table, change, **arguments), Conflict)
    relaxed = writer.commit(table, change, isolation=WRITE_SERIALIZABLE, **arguments)
    assert isinstance(relaxed, Committed)
    assert reader.history(table)[0]["isolation_level"] == "WriteSerializable"


def test_a_rearrangement_passes_appends_but_not_deletes_of_its_files(metastore, writer, reader):
    table = a_table(metastore)
    commit(metastore, table, add("a"), add("b"), add("c"))
    commit(metastore, table, add("d"))
    compaction = [
        remove("a", data_change=False),
        remove("b", data_change=False),
        add("ab", data_change=False),
    ]
    reads = ReadSet(whole_table=True)
    done = writer.commit(table, compaction, read_version=1, reads=reads)
    assert isinstance(done, Committed)
    assert reader.history(table)[0]["isolation_level"] == "SnapshotIsolation"
    late = writer.commit(table, [remove("b"), add("b2")], read_version=1)
    assert isinstance(late, Conflict)
    assert sorted(paths(reader.live_files(table))) == ["ab", "c", "d"]


def test_partitions_that_were_not_read_do_not_matter(metastore, writer):
    table = a_table(metastore, partitioned_by={"day": "date"})
    commit(metastore, table, on("2026-01-01", "a"))
    commit(metastore, table, on("2026-01-02", "b"))
    mine = [remove("a"), on("2026-01-01", "a2")]
    read = {"read_version": 1, "reads": in_day("2026-01-01")}
    assert isinstance(writer.commit(table, mine, **read), Committed)
    commit(metastore, table, on("2026-01-01", "c"))
    read["read_version"] = 3
    outcome = writer.commit(table, [on("2026-01-01", "d")], **read)
    assert isinstance(outcome, Conflict)
    assert outcome.reason is ConflictReason.CONCURRENT_APPEND


def test_a_new_vector_and_a_remove_of_the_same_file_conflict(metastore, writer):
    table = a_table(
        metastore,
        features=["deletionVectors"],
        configuration={"delta.enableDeletionVectors": "true"},
    )
    commit(metastore, table, add("a", stats=stats_of(10)))
    vector = a_vector(cardinality=1)
    commit(metastore, table, remove("a"), add("a", stats=stats_of(10), deletion_vector=vector))
    outcome = writer.commit(table, [remove("a")], read_version=1)
    assert isinstance(outcome, Conflict)
    assert outcome.reason is ConflictReason.CONCURRENT_DELETE_DELETE


def test_two_changes_of_a_domain_or_an_application_conflict(metastore, writer):
    table = a_table(metastore, features=["domainMetadata"])
    commit(metastore, table, a_domain("d", configuration="1"), txn("app", 1))
    domain = writer.commit(table, [a_domain("d", configuration="2")], read_version=0)
    application = writer.commit(table, [txn("app", 2)], read_version=0)
    assert isinstance(domain, Conflict)
    assert domain.reason is ConflictReason.CONCURRENT_DOMAIN_METADATA
    assert isinstance(application, Conflict)
    assert application.reason is ConflictReason.CONCURRENT_TRANSACTION
    other = writer.commit(table, [a_domain("e"), txn("other", 1)], read_version=0)
    assert isinstance(other, Committed)


def test_an_append_only_table_takes_no_removes_of_data(metastore, writer, reader):
    table = a_table(metastore, configuration={"delta.appendOnly": "true"})
    commit(metastore, table, add("a"))
    with pytest.raises(RuleViolationError) as caught:
        writer.commit(table, [remove("a")])
    assert caught.value.rule == "DL-AO-01"
    rewritten = [remove("a", data_change=False), add("a2", data_change=False)]
    assert isinstance(writer.commit(table, rewritten), Committed)
    assert paths(reader.live_files(table)) == ["a2"]


@pytest.mark.parametrize(
    ("actions", "reads", "blind"),
    [
        ([add("x")], ReadSet(), True),
        ([add("x")], WHOLE, False),
        ([remove("a"), add("x")], ReadSet(), False),
        ([CommitInfo({"isBlindAppend": False}), add("x")], ReadSet(), False),
        ([CommitInfo({"isBlindAppend": True}), remove("a"), add("x")], WHOLE, False),
    ],
)
def test_a_commit_says_whether_it_was_a_blind_append(metastore, reader, actions, reads, blind):
    """Others decide by it: the writer's word counts, not what the caller hopes for."""
    table = a_table(metastore)
    commit(metastore, table, add("a"))
    commit(metastore, table, *actions, reads=reads)
    (found,) = reader.commits(table, first=2)
    (info,) = (a for a in found.file.actions if isinstance(a, CommitInfo))
    assert info.get("isBlindAppend") is blind
    assert reader.history(table)[0]["is_blind_append"] is blind
