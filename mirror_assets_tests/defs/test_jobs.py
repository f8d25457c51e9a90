"""Jobs for people, their schedules, and the checks of the platform itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from mirror_assets.defs.keys import METASTORE, OBJECT_STORE
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.breaker_store import BreakerRow, write_breaker
from mirror_assets_tests.builders import a_metastore

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets.defs.keys import TableKeys
    from mirror_assets_tests.defs.platform import Platform


@pytest.fixture
def mirrored(platform: Platform) -> TableKeys:
    keys = platform.table(commits=4)
    platform.world.mirror().settle(patience_s=5)
    return keys


def run(
    platform: Platform, job: str, op: str | None = None, **config: Any
) -> dg.ExecuteInProcessResult:
    definition = platform.definitions().resolve_job_def(job)
    run_config = {"ops": {op: {"config": config}}} if op else {}
    return definition.execute_in_process(
        instance=platform.instance, run_config=run_config, raise_on_error=False
    )


def shown(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """What the run's page shows of its op."""
    (output,) = [event for event in done.all_events if event.is_successful_output]
    return dict(output.step_output_data.metadata)


def failure(done: dg.ExecuteInProcessResult) -> str:
    (failed,) = [event for event in done.all_events if event.is_step_failure]
    return str(failed.event_specific_data)


def test_reconcile_plans_first_and_repairs_when_told(
    platform: Platform, mirrored: TableKeys
) -> None:
    file = platform.root / mirrored.table / "_delta_log" / CommitName(2).name
    file.unlink()
    planned = run(platform, "reconcile", "reconcile_tables", mode="smart")
    assert "DL-FILE-03" in failure(planned)
    assert not file.exists()
    applied = shown(run(platform, "reconcile", "reconcile_tables", mode="smart", apply=True))
    (repair,) = applied["repairs"].records
    assert repair.data["kind"] == "republish"
    assert file.exists()


def test_reconcile_looks_at_the_others_when_one_cannot_be_looked_at(
    platform: Platform, mirrored: TableKeys
) -> None:
    platform.table("sales.empty")
    done = run(platform, "reconcile", "reconcile_tables", mode="full")
    assert done.success
    assert shown(done)["tables"].value == 2


def test_cleanup_shows_its_plan(platform: Platform, mirrored: TableKeys) -> None:
    done = run(platform, "cleanup", "clean_tables")
    assert done.success
    assert shown(done)["expired_files"].value == 0


def test_rebuild_publishes_the_log_elsewhere(
    platform: Platform, mirrored: TableKeys, tmp_path: Path
) -> None:
    to = str(tmp_path / "elsewhere")
    done = run(platform, "rebuild", "rebuild_table", table=mirrored.table, to=to)
    assert shown(done)["commits"].value == 5
    assert "MA-106" in failure(
        run(platform, "rebuild", "rebuild_table", table=mirrored.table, to=to)
    )


def test_a_place_outside_of_the_allowed_roots_is_refused(
    platform: Platform, mirrored: TableKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_ALLOWED_ROOTS", str(platform.root))
    done = run(platform, "rebuild", "rebuild_table", table=mirrored.table, to="/elsewhere")
    assert "outside of the allowed roots" in failure(done)


def test_verify_store_says_that_a_directory_is_safe(platform: Platform, tmp_path: Path) -> None:
    done = run(platform, "verify_store", "probe_a_store", location=str(tmp_path / "probe"))
    assert shown(done)["safe"].value == "True"


def test_import_looks_before_it_takes_a_table_over(
    platform: Platform, mirrored: TableKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    monkeypatch.setenv("MIRROR_METASTORE_URL", url)
    config = {"location": platform.world.location(mirrored.table), "name": "taken.over"}
    with a_metastore(url):
        looked = run(platform, "import_table", "import_a_table", **config)
        assert shown(looked)["version"].value == 4
        taken = run(platform, "import_table", "import_a_table", **config, dry_run=False)
        assert taken.success
        again = run(platform, "import_table", "import_a_table", **config, dry_run=False)
        assert "MA-106" in failure(again)


def test_pruning_keeps_what_is_new(platform: Platform, mirrored: TableKeys) -> None:
    platform.add_keys(mirrored, 4)
    assert shown(run(platform, "prune_partitions"))["keys"].value == 0


def test_conformance_checks_every_table(platform: Platform, mirrored: TableKeys) -> None:
    platform.table("sales.refunds", commits=1)
    platform.world.mirror().settle(patience_s=5)
    done = run(platform, "conformance")
    found = done.get_asset_check_evaluations()
    assert {check.asset_key.path[1] for check in found} == {"orders", "refunds"}
    assert {check.check_name: check.description for check in found if not check.passed} == {}


def platform_checks(platform: Platform) -> dict[str, dg.AssetCheckEvaluation]:
    found = run(platform, "platform_checks").get_asset_check_evaluations()
    return {check.check_name: check for check in found}


def test_the_platform_is_checked(platform: Platform, mirrored: TableKeys) -> None:
    found = platform_checks(platform)
    assert set(found) == {"schema_revision", "breaker_closed", "store_is_safe"}
    assert all(check.passed for check in found.values())
    assert found["store_is_safe"].metadata["stores"].value == 1
    for key in (METASTORE, OBJECT_STORE):
        assert platform.instance.get_latest_materialization_event(key), "the graph shows it green"


def test_an_open_breaker_and_a_missing_metastore_are_told(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_breaker(platform.metastore, BreakerRow(store="s3://lake", state="open", failures=5))
    assert "s3://lake failed 5 times" in (platform_checks(platform)["breaker_closed"].description)
    monkeypatch.setenv("MIRROR_METASTORE_URL", "sqlite:///nowhere.db")
    found = platform_checks(platform)
    assert not any(check.passed for check in found.values())
    assert "mirror-assets init" in found["schema_revision"].metadata["remedy"].value


def test_schedules_plan_unless_they_are_told_to_act(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acts() -> set[Any]:
        schedule = platform.definitions().get_repository_def().get_schedule_def
        found = set()
        for name in ("reconcile_smart_hourly", "cleanup_daily"):
            data = schedule(name).evaluate_tick(dg.build_schedule_context(platform.instance))
            (op,) = data.run_requests[0].run_config["ops"].values()
            found.add(op["config"]["apply"])
        return found

    assert acts() == {False}
    monkeypatch.setenv("MIRROR_APPLY_REPAIRS", "true")
    assert acts() == {True}
