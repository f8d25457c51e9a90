"""The checks on a table's log: green on a good one, with findings on a broken one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import dagster as dg
import pytest
import yaml

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.metastore.tables import dl_add_files
from mirror_assets.mirror.log_checks import CHECKS

if TYPE_CHECKING:
    from mirror_assets.defs.keys import TableKeys
    from mirror_assets_tests.defs.platform import Platform


def checks(platform: Platform, keys: TableKeys) -> dict[str, dg.AssetCheckEvaluation]:
    done = platform.materialize(keys.delta_log)
    assert done.success
    return {found.check_name: found for found in done.get_asset_check_evaluations()}


@pytest.fixture
def mirrored(platform: Platform) -> TableKeys:
    keys = platform.table(commits=5)
    mirror = platform.world.mirror()
    mirror.settle(patience_s=5)
    mirror.checkpoints.build(keys.table, 3)
    return keys


def test_a_good_log_passes_every_check(platform: Platform, mirrored: TableKeys) -> None:
    found = checks(platform, mirrored)
    assert list(found) == list(CHECKS)
    assert {name: c.description for name, c in found.items() if not c.passed} == {}
    assert found["state_matches_sql"].metadata["live_files"].value == 5
    assert found["checkpoint_matches_replay"].metadata["newest_checkpoint"].value == 3


def test_a_table_of_which_nothing_is_published_fails_nothing(platform: Platform) -> None:
    keys = platform.table(commits=1)
    assert all(check.passed for check in checks(platform, keys).values())


def test_a_missing_commit_file_fails_gapless_and_says_what_to_do(
    platform: Platform, mirrored: TableKeys
) -> None:
    (platform.root / mirrored.table / "_delta_log" / CommitName(4).name).unlink()
    found = checks(platform, mirrored)["gapless"]
    assert not found.passed
    assert found.severity is dg.AssetCheckSeverity.ERROR
    (record,) = found.metadata["what_was_found"].records
    assert (record.data["rule"], record.data["version"]) == ("DL-FILE-03", 4)
    assert "publishes it again" in found.metadata["remedy"].value


def test_a_finding_leads_to_the_job_that_repairs_it(
    platform: Platform, mirrored: TableKeys
) -> None:
    file = platform.root / mirrored.table / "_delta_log" / CommitName(4).name
    file.unlink()
    page = urlsplit(checks(platform, mirrored)["gapless"].metadata["repair"].value)
    assert page.path.endswith("/jobs/reconcile/playground/setup")
    asked = yaml.safe_load(parse_qs(page.query)["config"][0])
    consent = asked["ops"]["reconcile_tables"]["config"]
    assert (consent["tables"], consent["apply"]) == ([mirrored.table], False)
    consent["apply"] = True
    job = platform.definitions().resolve_job_def("reconcile")
    assert job.execute_in_process(asked, instance=platform.instance).success
    assert file.exists()
    assert all(check.passed for check in checks(platform, mirrored).values())


def test_other_bytes_fail_bytes_match_sql(platform: Platform, mirrored: TableKeys) -> None:
    file = platform.root / mirrored.table / "_delta_log" / CommitName(5).name
    file.write_bytes(file.read_bytes().replace(b"f-5", b"f-6"))
    found = checks(platform, mirrored)
    failed = {name for name, check in found.items() if not check.passed}
    assert failed == {"bytes_match_sql", "state_matches_sql"}


def test_a_broken_checkpoint_fails_its_check(platform: Platform, mirrored: TableKeys) -> None:
    (file,) = (platform.root / mirrored.table / "_delta_log").glob("*.checkpoint.parquet")
    file.write_bytes(file.read_bytes()[:100])
    assert not checks(platform, mirrored)["checkpoint_matches_replay"].passed


def test_a_row_of_sql_that_cannot_be_right_is_shown(
    platform: Platform, mirrored: TableKeys
) -> None:
    add = dl_add_files
    with platform.metastore.write() as connection:
        broken = {"path": "../secrets.parquet", "size": -4, "stats": "[]"}
        connection.execute(add.update().where(add.c.version == 5).values(broken))
    found = checks(platform, mirrored)["state_matches_sql"]
    rows = [record.data for record in found.metadata["what_was_found"].records]
    rules = {row["rule"] for row in rows if "secrets" in str(row["message"])}
    assert {"DL-ADD-01", "DL-ADD-02", "DL-STAT-01"} <= rules


def test_a_row_that_waits_is_looked_at_when_nothing_is_published_yet(platform: Platform) -> None:
    keys = platform.table(commits=1)
    add = dl_add_files
    with platform.metastore.write() as connection:
        connection.execute(add.update().where(add.c.version == 1).values(size=-4))
    assert [name for name, c in checks(platform, keys).items() if not c.passed] == [
        "state_matches_sql"
    ]


def test_a_row_that_cannot_be_right_is_shown_before_it_is_published(platform: Platform) -> None:
    """The mirror stops at it, for its bytes are not those that were frozen; the check says why."""
    keys = platform.table(commits=2)
    mirror = platform.world.mirror()
    mirror.settle(patience_s=5)
    platform.commit(keys, 3)
    add = dl_add_files
    with platform.metastore.write() as connection:
        broken = {"size": -4, "partition_values": '{"country":"fr"}'}
        connection.execute(add.update().where(add.c.version == 3).values(broken))
    mirror.settle(patience_s=5)
    assert platform.world.state(keys.table).state == "QUARANTINED"
    assert platform.files(keys) == list(range(3))
    found = checks(platform, keys)["state_matches_sql"]
    assert not found.passed
    rows = [record.data for record in found.metadata["what_was_found"].records]
    told = {(row["rule"], row["version"]) for row in rows if "row of" in str(row["message"])}
    assert told == {("DL-ADD-01", 3), ("DL-ADD-07", 3)}


def test_one_check_can_be_run_alone(platform: Platform, mirrored: TableKeys) -> None:
    key = dg.AssetCheckKey(mirrored.delta_log, "gapless")
    job = dg.define_asset_job("one", selection=dg.AssetSelection.checks(key))
    defs = dg.Definitions.merge(platform.definitions(), dg.Definitions(jobs=[job]))
    done = defs.resolve_job_def("one").execute_in_process(instance=platform.instance)
    assert [found.check_name for found in done.get_asset_check_evaluations()] == ["gapless"]
