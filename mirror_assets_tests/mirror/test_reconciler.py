"""The reconciler: each damage is found in the mode that can see it, and repaired only if safe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from sqlalchemy import select, update

from mirror_assets.delta.log_paths import ClassicCheckpoint
from mirror_assets.findings import Severity
from mirror_assets.metastore.tables import dl_mirror_events, dl_mirror_status, dl_mirror_tables
from mirror_assets.mirror.cleanup import apply_cleanup, plan_of
from mirror_assets.mirror.reconciler import Mode, Report, highest, reconcile
from mirror_assets_tests.builders import commit
from mirror_assets_tests.mirror.published import (
    age,
    assert_readable,
    commit_file,
    contents,
    extend,
    mirror,
    pointer,
    publish,
)

if TYPE_CHECKING:
    from mirror_assets_tests.mirror.lake import Lake

ALL = list(Mode)
LISTED = [Mode.SMART, Mode.FULL]


def look(lake: Lake, mode: Mode, *, apply: bool = False) -> Report:
    return reconcile(lake.metastore, lake.store, lake.name, mode, apply=apply)


def errors(report: Report) -> list[tuple[str, int | None]]:
    return [(f.rule, f.version) for f in report.findings if f.severity is Severity.ERROR]


def steps(report: Report) -> list[tuple[str, int]]:
    return [(repair.kind.value, repair.version) for repair in report.plan]


def repaired(lake: Lake, mode: Mode) -> Report:
    """A report after which nothing is left to find, in any mode."""
    report = look(lake, mode, apply=True)
    assert report.applied == report.plan
    assert errors(report) == []
    assert [f for f in look(lake, Mode.FULL).findings if f.severity is Severity.ERROR] == []
    return report


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("features", [(), ("v2Checkpoint",)])
def test_a_whole_log_has_no_findings(lake: Lake, mode: Mode, features: tuple[str, ...]) -> None:
    publish(lake, 5, checkpoints=(2, 4), features=features)
    before = contents(lake)
    report = look(lake, mode, apply=True)
    assert (report.findings, report.plan, report.applied) == ((), (), ())
    assert report.mode is mode
    assert report.recommended_next_mode is Mode.INCREMENTAL
    assert contents(lake) == before


@pytest.mark.parametrize("mode", ALL)
def test_a_deleted_tail_is_published_again(lake: Lake, mode: Mode) -> None:
    publish(lake, 5, checkpoints=(2,))
    before = contents(lake)
    for version in (4, 5):
        commit_file(lake, version).unlink()
    report = look(lake, mode)
    assert errors(report) == [("DL-FILE-03", 4), ("DL-FILE-03", 5)]
    assert report.mode is (Mode.SMART if mode is Mode.INCREMENTAL else mode)
    assert steps(repaired(lake, mode)) == [("republish", 4), ("republish", 5)]
    assert contents(lake) == before
    assert_readable(lake, 0, 5)


@pytest.mark.parametrize("mode", LISTED)
@pytest.mark.parametrize("checkpoints", [(), (2,), (5,)])
def test_a_deleted_middle_is_published_again(
    lake: Lake, mode: Mode, checkpoints: tuple[int, ...]
) -> None:
    publish(lake, 5, checkpoints=checkpoints)
    before = contents(lake)
    commit_file(lake, 3).unlink()
    assert steps(repaired(lake, mode)) == [("republish", 3)]
    assert contents(lake) == before
    assert_readable(lake, 0, 5)


def test_what_a_cleanup_removed_is_no_gap(lake: Lake) -> None:
    publish(lake, 6, checkpoints=(4,))
    age(lake, until=5, days=40)
    plan = plan_of(lake.metastore, lake.store, lake.name)
    apply_cleanup(lake.metastore, lake.store, lake.name, plan)
    for mode in ALL:
        assert look(lake, mode).findings == ()
    commit_file(lake, 5).unlink()
    commit_file(lake, 4).unlink()
    assert steps(repaired(lake, Mode.SMART)) == [("republish", 4), ("republish", 5)]
    assert_readable(lake, 4, 6)


def test_a_log_that_was_lost_is_published_again(lake: Lake) -> None:
    publish(lake, 3)
    before = contents(lake)
    for version in range(4):
        commit_file(lake, version).unlink()
    repaired(lake, Mode.INCREMENTAL)
    assert contents(lake) == before
    assert_readable(lake, 0, 3)


@pytest.mark.parametrize("version", [3, 5])
def test_a_tampered_file_is_found_by_its_digest_and_never_overwritten(
    lake: Lake, version: int
) -> None:
    publish(lake, 5, checkpoints=(4,))
    file = commit_file(lake, version)
    file.write_bytes(file.read_bytes().replace(b'"dataChange":true', b'"dataChange":True'))
    before = contents(lake)
    assert errors(look(lake, Mode.SMART)) == []
    report = look(lake, Mode.FULL, apply=True)
    assert errors(report) == [("DL-FILE-02", version)]
    assert report.applied == ()
    assert f"diff {lake.name} --version {version}" in report.findings[0].remedy
    assert report.recommended_next_mode is Mode.FULL
    assert contents(lake) == before


def test_incremental_goes_all_the_way_if_its_base_is_another(lake: Lake) -> None:
    publish(lake, 3)
    file = commit_file(lake, 3)
    file.write_bytes(file.read_bytes().replace(b'"dataChange":true', b'"dataChange":True'))
    report = look(lake, Mode.INCREMENTAL)
    assert (report.mode, errors(report)) == (Mode.FULL, [("DL-FILE-02", 3)])


def test_an_empty_file_is_found_by_its_size_and_makes_the_look_complete(lake: Lake) -> None:
    publish(lake, 4)
    commit_file(lake, 2).write_bytes(b"")
    report = look(lake, Mode.SMART, apply=True)
    assert (report.mode, errors(report)) == (Mode.FULL, [("DL-FILE-02", 2)])
    assert commit_file(lake, 2).read_bytes() == b""
    commit_file(lake, 2).unlink()  # as the remedy says
    repaired(lake, Mode.SMART)
    assert_readable(lake, 0, 4)


@pytest.mark.parametrize("mode", ALL)
def test_a_foreign_version_is_left_to_a_person(lake: Lake, mode: Mode) -> None:
    publish(lake, 3, checkpoints=(2,))
    commit_file(lake, 4).write_bytes(b'{"commitInfo":{}}\n')
    pointer(lake).write_bytes(b"{")
    before = contents(lake)
    report = look(lake, mode, apply=True)
    assert ("MA-403", 4) in errors(report)
    assert report.applied == ()
    assert contents(lake) == before


def test_a_foreign_file_where_a_commit_waits_is_told_from_one_that_is_ours(lake: Lake) -> None:
    publish(lake, 2)
    for number in range(2):
        commit(lake.metastore, lake.name, lake.file(pa.table({"id": [number]})))
    lake.mirror()  # the files, but no record of them
    commit_file(lake, 4).write_bytes(b"{}\n")
    report = look(lake, Mode.INCREMENTAL)
    found = [(f.rule, f.version, f.severity.value) for f in report.findings]
    assert found == [("MA-404", 3, "info"), ("DL-FILE-02", 4, "error")]


@pytest.mark.parametrize("content", [b"{garbage", b"", b"[]", b'{"version":99,"size":3}', None])
@pytest.mark.parametrize("mode", LISTED)
def test_a_wrong_pointer_is_pointed_at_the_newest_checkpoint(
    lake: Lake, content: bytes | None, mode: Mode
) -> None:
    publish(lake, 5, checkpoints=(2, 4))
    before = contents(lake)
    if content is None:
        pointer(lake).unlink()
    else:
        pointer(lake).write_bytes(content)
    assert "DL-LCP-02" in {f.rule for f in look(lake, mode).findings}
    assert steps(repaired(lake, mode)) == [("pointer", 4)]
    assert contents(lake).keys() == before.keys()
    assert json.loads(pointer(lake).read_bytes())["version"] == 4
    assert_readable(lake, 0, 5)
    with lake.metastore.read() as connection:
        told = connection.execute(select(dl_mirror_events.c.event, dl_mirror_events.c.detail))
        kept = dict(tuple(row) for row in told)
    assert repr(content) in kept["pointer_replaced"] or content is None


def test_a_pointer_to_a_lost_checkpoint_goes_to_the_one_before_or_to_a_new_one(
    lake: Lake,
) -> None:
    publish(lake, 5, checkpoints=(2, 4))
    (lake.log / ClassicCheckpoint(4).name).unlink()
    assert steps(repaired(lake, Mode.SMART)) == [("pointer", 2)]
    (lake.log / ClassicCheckpoint(2).name).unlink()
    assert steps(repaired(lake, Mode.SMART)) == [("pointer", 5)]
    assert_readable(lake, 0, 5)


def test_a_torn_checkpoint_is_passed_by_a_newer_one(lake: Lake) -> None:
    publish(lake, 5, checkpoints=(4,))
    file = lake.log / ClassicCheckpoint(4).name
    file.write_bytes(file.read_bytes()[:-30])
    torn = file.read_bytes()
    report = look(lake, Mode.SMART)
    assert report.mode is Mode.FULL, "its length tells"
    assert errors(report)[0][1] == 4
    assert steps(report) == [("checkpoint", 5), ("pointer", 5)]
    done = look(lake, Mode.FULL, apply=True)
    assert errors(done) == []
    assert file.read_bytes() == torn
    assert json.loads(pointer(lake).read_bytes())["version"] == 5
    assert_readable(lake, 5, 5)


def test_a_torn_checkpoint_of_the_head_is_not_pointed_at(lake: Lake) -> None:
    publish(lake, 5, checkpoints=(5,))
    file = lake.log / ClassicCheckpoint(5).name
    file.write_bytes(file.read_bytes()[:-30])
    report = look(lake, Mode.SMART, apply=True)
    assert steps(report) == []
    told = {finding.rule: finding for finding in report.findings}
    assert "unsound" in told["DL-LCP-02"].message
    assert "commit once" in told["DL-LCP-02"].remedy
    extend(lake)
    report = look(lake, Mode.SMART, apply=True)
    assert (errors(report), steps(report)) == ([], [("checkpoint", 6), ("pointer", 6)])
    assert_readable(lake, 6, 6)


def test_an_empty_checkpoint_of_the_head_waits_for_the_next_commit(lake: Lake) -> None:
    publish(lake, 5, checkpoints=(5,))
    file = lake.log / ClassicCheckpoint(5).name
    file.write_bytes(b"")
    report = look(lake, Mode.SMART, apply=True)
    assert ("DL-FILE-13", 5) in errors(report)
    assert file.read_bytes() == b""
    extend(lake)
    report = look(lake, Mode.SMART, apply=True)
    assert errors(report) == []
    assert ("checkpoint", 6) in steps(report)
    assert_readable(lake, 6, 6)


def test_a_checkpoint_with_other_content_is_found(lake: Lake) -> None:
    publish(lake, 5, checkpoints=(3, 4))
    names = [lake.log / ClassicCheckpoint(version).name for version in (3, 4)]
    names[1].write_bytes(names[0].read_bytes())
    assert errors(look(lake, Mode.FULL)) == [("DL-CP-01", 4), ("DL-LCP-02", None)]


def test_statuses_of_files_that_are_there_are_healed(lake: Lake) -> None:
    publish(lake, 3)
    with lake.metastore.write() as connection:
        of_two = dl_mirror_status.c.version == 2
        connection.execute(update(dl_mirror_status).where(of_two).values(status="FAILED"))
    assert steps(repaired(lake, Mode.SMART)) == [("status", 2)]
    with lake.metastore.read() as connection:
        statuses = connection.execute(select(dl_mirror_status.c.status)).scalars().all()
    assert set(statuses) == {"SUCCESS"}


def test_a_table_that_waits_because_of_a_gap_goes_on_at_once(lake: Lake) -> None:
    publish(lake, 3)
    commit_file(lake, 3).unlink()
    commit(lake.metastore, lake.name, lake.file(pa.table({"id": [9]})))
    mirror(lake)
    assert not commit_file(lake, 4).exists()
    look(lake, Mode.INCREMENTAL, apply=True)
    mirror(lake)
    assert_readable(lake, 0, 4)


def test_a_mirror_that_stopped_for_no_reason_that_is_left_is_told(lake: Lake) -> None:
    publish(lake, 2)
    with lake.metastore.write() as connection:
        connection.execute(update(dl_mirror_tables).values(state="DIVERGED"))
    (finding,) = look(lake, Mode.FULL).findings
    assert finding.severity is Severity.WARNING
    assert f"resume {lake.name}" in finding.remedy


def test_strange_names_are_told_apart(lake: Lake) -> None:
    publish(lake, 1)
    (lake.log / "notes.txt").write_text("mine")
    (lake.log / "00007.json").write_text("{}")
    report = look(lake, Mode.SMART)
    found = {(f.rule, f.severity.value, f.file) for f in report.findings}
    assert found == {("DL-FILE-15", "info", "notes.txt"), ("DL-FILE-01", "error", "00007.json")}


def test_the_highest_of_several_recommended_modes_counts() -> None:
    assert highest([]) is Mode.INCREMENTAL
    assert highest([Mode.FULL, Mode.SMART]) is Mode.FULL
