from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_assets.delta import commit_file
from mirror_assets.delta.actions import CdcFile, CommitInfo, Txn
from mirror_assets.delta.table_state import TableState, replay, state_at
from mirror_assets.errors import RuleViolationError
from mirror_assets_tests.delta.samples import (
    a_domain,
    a_metadata,
    a_protocol,
    a_remove,
    a_vector,
    an_add,
)

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = a_vector(offset=1), a_vector(offset=2)


def test_live_files_are_those_added_and_not_removed():
    state = replay([(0, [an_add("a", size=1), an_add("b", size=2)]), (1, [a_remove("a")])])
    assert set(state.files) == {("b", "")}
    assert set(state.tombstones) == {("a", "")}
    assert (state.version, state.num_files, state.size_bytes) == (1, 1, 2)


def test_adding_a_file_again_replaces_its_entry():
    state = replay([(0, [an_add("a", size=1)]), (1, [an_add("a", size=5, data_change=False)])])
    assert (state.num_files, state.size_bytes) == (1, 5)


def test_adding_a_removed_file_again_lifts_its_tombstone():
    state = replay([(0, [an_add("a")]), (1, [a_remove("a")]), (2, [an_add("a")])])
    assert (set(state.files), state.tombstones) == ({("a", "")}, {})


@pytest.mark.parametrize("reverse", [False, True])
def test_a_new_deletion_vector_replaces_the_old_one_whatever_the_order_in_the_commit(reverse):
    update = [a_remove("a", deletion_vector=OLD), an_add("a", deletion_vector=NEW)]
    state = replay([(0, [an_add("a", deletion_vector=OLD)]), (1, update[:: -1 if reverse else 1])])
    assert set(state.files) == {("a", NEW.unique_id)}
    assert set(state.tombstones) == {("a", OLD.unique_id)}


def test_a_path_keeps_a_tombstone_per_deletion_vector():
    first = [a_remove("a"), an_add("a", deletion_vector=OLD)]
    second = [a_remove("a", deletion_vector=OLD), an_add("a", deletion_vector=NEW)]
    state = replay([(0, [an_add("a")]), (1, first), (2, second)])
    assert set(state.tombstones) == {("a", ""), ("a", OLD.unique_id)}


def test_offset_zero_and_no_offset_are_different_files():
    without, zero = a_vector(offset=None), a_vector(offset=0)
    state = replay([(0, [an_add("a", deletion_vector=zero)])])
    state = state.apply(1, [a_remove("a", deletion_vector=without)])
    assert state.num_files == 1


def test_the_newest_txn_of_an_application_wins_even_if_its_version_falls():
    state = replay([(0, [Txn(app_id="x", version=9)]), (1, [Txn(app_id="x", version=3)])])
    assert state.txns["x"].version == 3


def test_a_removed_domain_is_gone():
    state = replay([(0, [a_domain("d"), a_domain("e")]), (1, [a_domain("d", removed=True)])])
    assert set(state.domains) == {"e"}


def test_metadata_and_protocol_are_the_latest():
    first, second = a_metadata(name="one"), a_metadata(name="two")
    state = replay([(0, [first, a_protocol()]), (1, [second]), (2, [a_protocol("appendOnly")])])
    assert state.metadata == second
    assert state.protocol == a_protocol("appendOnly")


def test_change_files_and_provenance_are_no_part_of_the_state():
    cdc = CdcFile(path="_change_data/c", partition_values={}, size=1, data_change=False)
    assert replay([(0, [cdc, CommitInfo({})])]) == TableState(version=0)


@pytest.mark.parametrize("version", [0, 2])
def test_a_version_that_is_not_the_next_is_refused(version):
    state = replay([(0, [an_add()])])
    with pytest.raises(RuleViolationError, match=f"version {version}"):
        state.apply(version, [])


def test_applying_leaves_the_earlier_state_as_it_was():
    before = replay([(0, [an_add("a")])])
    before.apply(1, [a_remove("a")])
    assert before.num_files == 1


def a_history(names):
    live = set()
    for version, name in enumerate(names):
        action = a_remove(name) if name in live else an_add(name, size=version)
        live ^= {name}
        yield version, [action, Txn(app_id=name, version=version)]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(0, 12))
def test_a_checkpoint_and_the_commits_after_it_say_what_all_commits_say(names, at):
    commits = list(a_history(names))
    whole = replay(commits)
    early = replay(commits[:at])
    actions = [*early.files.values(), *early.tombstones.values(), *early.txns.values()]
    assert replay(commits[at:], base=state_at(early.version, actions)) == whole


@pytest.mark.corpora
def test_replaying_a_real_log_at_once_or_step_by_step_is_the_same(corpora: Path):
    log = corpora / "golden" / "basic-with-inserts-deletes-checkpoint" / "_delta_log"
    paths = sorted(path for path in log.glob("*.json") if path.stem.isdecimal())
    commits = [(int(path.stem), commit_file.decode(path.read_bytes()).actions) for path in paths]
    state = TableState()
    for version, actions in commits:
        state = state.apply(version, actions)
    assert state == replay(commits)
    assert state.num_files
