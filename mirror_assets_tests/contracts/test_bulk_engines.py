"""Bulk jobs, by Spark and in this process: whoever works through the items leaves the same."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from mirror_assets.delta import sidecar_plan
from mirror_assets.errors import ImportRefusedError
from mirror_assets.metastore.importer import import_table
from mirror_assets.mirror.bulk import reconciling
from mirror_assets.mirror.bulk.checkpoints import (
    build_checkpoint,
    build_checkpoints,
    build_due_checkpoints,
)
from mirror_assets.mirror.bulk.comparing import compare_states
from mirror_assets.mirror.bulk.imports import AlreadyOurs, ImportRefusal, import_tables
from mirror_assets.mirror.bulk.logs import backfill, rebuild_logs
from mirror_assets.mirror.bulk.reconciling import reconcile_logs
from mirror_assets.mirror.bulk.runner import InProcess
from mirror_assets.mirror.rebuild import rebuild
from mirror_assets.mirror.reconciler import Mode, reconcile
from mirror_assets.mirror.service import Mirror
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.work import Workers
from mirror_assets.storage.log_source import open_log
from mirror_assets_tests.builders import a_metastore, a_table, add, commit, remove, state_in_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_assets.metastore.database import Metastore
    from mirror_assets.mirror.bulk.runner import Runner

by_spark = pytest.param(
    "spark",
    marks=[
        pytest.mark.spark,
        pytest.mark.slow,
        pytest.mark.timeout(900),
        pytest.mark.xdist_group("spark"),
    ],
)
LATE = 4_000_000_000_000


@pytest.fixture(params=["in_process", by_spark])
def workers(request: pytest.FixtureRequest) -> Runner:
    if request.param == "spark":
        return Workers(request.getfixturevalue("spark"))
    return InProcess()


@pytest.fixture
def access(metastore_url: str) -> Access:
    return Access.to(metastore_url)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Metastore]:
    """Another metastore, whose tables are made and judged in this process."""
    with a_metastore(f"sqlite:///{tmp_path / 'elsewhere.db'}") as opened:
        yield opened


def filled(metastore: Metastore, root: Path, name: str, *features: str) -> str:
    """A table of five versions, with files, a tombstone, and a name of its own."""
    a_table(metastore, name, location=str(root / name), features=features)
    for number in range(3):
        commit(metastore, name, *(add(f"{number}-{n}.parquet", size=n) for n in range(10)))
    commit(metastore, name, remove("0-1.parquet", deletion_timestamp=LATE))
    return name


def log_of(root: Path, pattern: str = "*.json") -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in sorted((root / "_delta_log").glob(pattern))}


def actions_in(root: Path) -> list[str]:
    """What the checkpoints of a log tell of the table, decoded, however they are cut."""
    log = root / "_delta_log"
    files = [*log.glob("*.checkpoint*.parquet"), *log.glob("_sidecars/*.parquet")]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    layout = ("sidecar", "checkpointMetadata")
    return sorted(
        repr({kind: action for kind, action in row.items() if action is not None})
        for row in rows
        if all(row.get(kind) is None for kind in layout)
    )


def test_logs_and_checkpoints_are_those_of_the_mirror(
    workers: Runner,
    access: Access,
    metastore: Metastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sidecar_plan, "_SMALLEST_TARGET", 7)
    classic = filled(metastore, tmp_path, "db.classic")
    v2 = filled(metastore, tmp_path, "db.v2", "v2Checkpoint")
    assert backfill(workers, access, to_version=1) == {classic: 2, v2: 2}
    assert backfill(workers, access) == {classic: 3, v2: 3}
    assert backfill(workers, access) == {}

    places = {name: str(tmp_path / "again" / name) for name in (classic, v2)}
    own = {name: tmp_path / "own" / name for name in (classic, v2)}
    expected = {name: rebuild(metastore, name, access.log_store(str(own[name]))) for name in own}
    assert rebuild_logs(workers, access, places) == expected
    for name in (classic, v2):
        assert log_of(tmp_path / name) == log_of(Path(places[name])) == log_of(own[name])
        assert actions_in(Path(places[name])) == actions_in(own[name])

    whole = build_checkpoints(workers, access, [(classic, None)])[0]
    parts = build_checkpoint(workers, access, v2)
    for name, built in {classic: whole, v2: parts}.items():
        again = Mirror(metastore).checkpoints.build(name)
        assert (built.is_new, again.is_new) == (True, False)
        assert (built.version, built.actions) == (again.version, again.actions)
        assert actions_in(tmp_path / name) == actions_in(own[name])
    assert len(list((tmp_path / v2 / "_delta_log" / "_sidecars").iterdir())) > 2
    assert compare_states(workers, access) == {classic: [], v2: []}


def test_checkpoints_that_are_due_are_built_once(
    workers: Runner, access: Access, metastore: Metastore, tmp_path: Path
) -> None:
    busy, quiet = (
        a_table(
            metastore,
            f"db.t{interval}",
            location=str(tmp_path / str(interval)),
            configuration={"delta.checkpointInterval": str(interval)},
        )
        for interval in (3, 1000)
    )
    for name in (busy, quiet):
        for number in range(4):
            commit(metastore, name, add(f"{number}.parquet"))
    backfill(InProcess(), access)
    assert build_due_checkpoints(workers, access, [quiet]) == {}
    assert build_due_checkpoints(workers, access) == {busy: 1}
    assert build_due_checkpoints(workers, access) == {}
    found = {
        log.parent.name for log in tmp_path.glob("*/_delta_log") if list(log.glob("*.parquet"))
    }
    assert found == {"3"}


def test_imports_are_those_of_a_single_import(
    workers: Runner, access: Access, metastore: Metastore, elsewhere: Metastore, tmp_path: Path
) -> None:
    names = [filled(elsewhere, tmp_path, f"old.t{n}") for n in range(3)]
    places = {name: str(tmp_path / name) for name in names}
    rebuilt = {name: tmp_path / "rebuilt" / name for name in names}
    backfill(InProcess(), Access.to(str(elsewhere.engine.url)))
    broken = tmp_path / names[2] / "_delta_log" / f"{1:020d}.json"
    broken.write_text("no JSON\n")

    with a_metastore(f"sqlite:///{tmp_path / 'single.db'}") as single:
        expected = {n: import_table(single, open_log(places[n]), n) for n in names[:2]}
        with pytest.raises(ImportRefusedError) as refused:
            import_table(single, open_log(places[names[2]]), names[2])
        states = {name: state_in_sql(single, name) for name in names[:2]}

    looked = import_tables(workers, access, places, dry_run=True)
    assert [outcome.table for outcome in looked.values()] == names
    found = import_tables(workers, access, places)
    assert {name: found[name] for name in names[:2]} == expected
    refusal = found[names[2]]
    assert isinstance(refusal, ImportRefusal)
    error = refused.value
    assert (refusal.code, refusal.message) == (error.code, error.message)
    assert refusal.findings == error.findings != []
    for name in names[:2]:
        assert state_in_sql(metastore, name) == states[name]
        rebuild(metastore, name, access.log_store(str(rebuilt[name])))
        assert log_of(rebuilt[name]) == log_of(Path(places[name]))

    again = import_tables(workers, access, places)
    assert [again[n] for n in names[:2]] == [AlreadyOurs(table=n, version=4) for n in names[:2]]
    assert again[names[2]] == refusal


def test_an_import_that_was_cut_off_goes_on(
    workers: Runner, access: Access, metastore: Metastore, elsewhere: Metastore, tmp_path: Path
) -> None:
    name = filled(elsewhere, tmp_path, "old.t")
    place = str(tmp_path / name)
    backfill(InProcess(), Access.to(str(elsewhere.engine.url)))

    def cut_off(_: object) -> None:
        raise OSError("the machine went away")

    with pytest.raises(OSError, match="went away"):
        import_table(metastore, open_log(place), name, progress=cut_off)
    report = import_tables(workers, access, {name: place})[name]
    assert (report.table, report.version, report.commits) == (name, 4, 5)
    assert state_in_sql(metastore, name) == state_in_sql(elsewhere, name)


def test_reports_and_repairs_are_those_of_a_single_reconcile(
    workers: Runner, access: Access, metastore: Metastore, tmp_path: Path
) -> None:
    names = [filled(metastore, tmp_path, f"db.t{n}") for n in range(4)]
    backfill(InProcess(), access)
    logs = {name: tmp_path / name / "_delta_log" for name in names}
    sound = log_of(tmp_path / names[1])
    (logs[names[1]] / f"{2:020d}.json").unlink()
    other = logs[names[2]] / f"{1:020d}.json"
    other.write_text(other.read_text().replace("0-7.parquet", "0-8.parquet"))
    shutil.rmtree(logs[names[3]])
    logs[names[3]].write_text("no directory")

    def single(name: str) -> dict[str, Any]:
        store = access.log_store(str(tmp_path / name))
        return asdict(reconcile(metastore, store, name, Mode.FULL))

    reports = reconcile_logs(workers, access, names, Mode.FULL)
    assert [asdict(report) for report in reports[:3]] == [single(name) for name in names[:3]]
    assert [report.has_errors for report in reports] == [False, True, True, True]
    assert reports[3].findings[0].table == names[3]
    assert reports[3].findings[0].remedy

    (mended,) = reconcile_logs(workers, access, [names[1]], Mode.FULL, apply=True)
    assert (mended.has_errors, mended.applied) == (False, reports[1].plan)
    assert log_of(tmp_path / names[1]) == sound
    assert json.loads(other.read_text().splitlines()[-1])["add"]["path"] == "0-9.parquet"


def test_the_commit_files_of_one_table_are_read_in_spans(
    workers: Runner,
    access: Access,
    metastore: Metastore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciling, "_FILES_PER_ITEM", 2)
    name = filled(metastore, tmp_path, "db.large")
    backfill(InProcess(), access)
    assert not reconcile_logs(workers, access, [name], Mode.FULL)[0].findings
    log = tmp_path / name / "_delta_log"
    for version, old, new in ((1, "0-7.", "0-8."), (4, "0-1.", "0-2.")):
        file = log / f"{version:020d}.json"
        file.write_text(file.read_text().replace(old, new))
    (log / f"{2:020d}.json").unlink()

    (report,) = reconcile_logs(workers, access, [name], Mode.FULL)
    store = access.log_store(str(tmp_path / name))
    assert asdict(report) == asdict(reconcile(metastore, store, name, Mode.FULL))
    errors = {finding.version for finding in report.findings if finding.severity == "error"}
    assert errors == {1, 2, 4}


def test_a_planted_difference_is_found(
    workers: Runner, access: Access, metastore: Metastore, tmp_path: Path
) -> None:
    names = [filled(metastore, tmp_path, f"db.t{n}") for n in range(2)]
    backfill(InProcess(), access)
    file = tmp_path / names[1] / "_delta_log" / f"{1:020d}.json"
    file.write_text(file.read_text().replace("0-7.parquet", "0-77.parquet"))
    found = compare_states(workers, access)
    assert [name for name, findings in found.items() if findings] == [names[1]]
    assert any("0-7" in finding.message for finding in found[names[1]])
    assert {finding.severity.value for finding in found[names[1]]} == {"error"}
