"""Sensors: what they add, ask for, say, and when they keep still."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dagster as dg
import pytest

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.alert_sensors import changes
from mirror_assets.defs.follower_run import FollowerName
from mirror_assets.defs.heartbeats import LagBeats
from mirror_assets.defs.keys import FOLLOWER, KEPT_KEYS, ROLE_TAG, TableKeys
from mirror_assets.defs.partition_keys import add_new_keys, oldest_kept, prune_keys
from mirror_assets.defs.supervision import supervise
from mirror_assets.metastore.followers import Heartbeat, beat
from mirror_assets.metastore.mirror_state import MirrorState
from mirror_assets.mirror.alerts import Alert, notify
from mirror_assets.settings import load_settings

if TYPE_CHECKING:
    from mirror_assets_tests.defs.platform import Platform

NOW = time.time()
STARTED = dg.DagsterRunStatus.STARTED


def tick(platform: Platform, name: str, cursor: str | None = None) -> Any:
    """What the sensor answers; its new cursor is `.cursor`."""
    defs = platform.definitions()
    sensor = defs.get_repository_def().get_sensor_def(name)
    context = dg.build_sensor_context(
        instance=platform.instance,
        cursor=cursor,
        repository_def=defs.get_repository_def(),
        resources={"access": MirrorAccess()},
    )
    return sensor.evaluate_tick(context)


def a_state(table: str = "sales.orders", **members: Any) -> MirrorState:
    fields = {
        "table": table,
        "head_version": 10,
        "mirrored_version": 10,
        "checkpoint_version": -1,
        "state": "OK",
        "reason": None,
        "lag_ms": 0,
        "last_error": None,
        "attempts": 0,
        "next_attempt_in_ms": 0,
    }
    return MirrorState(**fields | members)


def a_follower(instance: dg.DagsterInstance, status: dg.DagsterRunStatus = STARTED) -> str:
    run_id = str(uuid4())
    instance.add_run(
        dg.DagsterRun(job_name="follow", run_id=run_id, status=status, tags={ROLE_TAG: FOLLOWER})
    )
    return run_id


def a_beat(run_id: str, age_ms: int, host: str = "elsewhere", pid: int = 1) -> Heartbeat:
    owner = str(FollowerName(run_id=run_id, host=host, pid=pid))
    return Heartbeat(owner=owner, age_ms=age_ms, beats=1, detail="")


def test_every_version_gets_a_partition_and_two_followers_are_asked_for(
    platform: Platform,
) -> None:
    keys = platform.table(commits=3)
    answer = tick(platform, "sql_versions")
    assert platform.instance.get_dynamic_partitions(keys.versions) == ["0", "1", "2", "3"]
    assert [request.tags[ROLE_TAG] for request in answer.run_requests] == [FOLLOWER, FOLLOWER]
    platform.commit(keys, 4)
    tick(platform, "sql_versions", answer.cursor)
    assert platform.instance.get_dynamic_partitions(keys.versions)[-1] == "4"


def test_no_follower_is_asked_for_while_two_live(platform: Platform) -> None:
    platform.table(commits=1)
    starting = a_follower(platform.instance, dg.DagsterRunStatus.STARTING)
    beating = a_follower(platform.instance)
    owner = FollowerName.of_this_process(beating)
    beat(platform.metastore, str(owner), "")
    answer = tick(platform, "sql_versions")
    assert not answer.run_requests
    for part in (
        "1 tables, 2 versions waiting",
        f"{starting[:8]} starting",
        f"{beating[:8]} beating",
    ):
        assert part in answer.skip_message


def test_runs_are_asked_for_when_they_drive(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_DRIVE", "runs")
    keys = platform.table(commits=3)
    answer = tick(platform, "sql_versions")
    (request,) = answer.run_requests
    assert request.asset_selection == [keys.commits]
    assert request.tags["dagster/asset_partition_range_start"] == "0"
    assert request.tags["dagster/asset_partition_range_end"] == "3"
    assert not tick(platform, "sql_versions", answer.cursor).run_requests, "not twice in a row"
    assert platform.materialize(keys.commits, tags=dict(request.tags)).success
    platform.world.assert_mirrored(keys.table)
    answer = tick(platform, "sql_versions", answer.cursor)
    assert not answer.run_requests
    assert platform.green(keys.commits) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["sql_versions", "registry"])
def test_a_sensor_says_why_it_skips_without_a_metastore(
    name: str, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.table()
    monkeypatch.setenv("MIRROR_METASTORE_URL", "postgresql://me:secret@127.0.0.1:1/none")
    message = tick(platform, name).skip_message
    assert message.startswith("the metastore does not answer: MA-101")
    assert "secret" not in message


def test_a_new_table_makes_the_location_reload_once(
    platform: Platform, webserver: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, posted = webserver
    monkeypatch.setenv("MIRROR_DAGSTER_URL", url)
    shown = platform.definitions().get_repository_def()
    platform.table("sales.orders")
    context = {"instance": platform.instance, "repository_def": shown}
    sensor = shown.get_sensor_def("registry")
    resources = {"access": MirrorAccess()}
    answer = sensor.evaluate_tick(dg.build_sensor_context(**context, resources=resources))
    assert answer.skip_message == "0 tables are shown; reloaded for ['sales.orders']: done"
    again = dg.build_sensor_context(**context, resources=resources, cursor=answer.cursor)
    assert "asked for already" in sensor.evaluate_tick(again).skip_message
    assert len(posted) == 1
    assert tick(platform, "registry").skip_message == "1 tables are shown"


def test_a_webserver_that_cannot_be_asked_is_named(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_DAGSTER_URL", "http://127.0.0.1:1")
    shown = platform.definitions().get_repository_def()
    platform.table("sales.orders")
    context = dg.build_sensor_context(
        instance=platform.instance, repository_def=shown, resources={"access": MirrorAccess()}
    )
    message = shown.get_sensor_def("registry").evaluate_tick(context).skip_message
    assert "no answer from http://127.0.0.1:1" in message
    assert "set dagster_url" in message


def test_a_dead_follower_is_failed_and_replaced(platform: Platform) -> None:
    gone = a_follower(platform.instance)
    this = FollowerName.of_this_process(gone)
    found = supervise(
        platform.instance, [a_beat(gone, 1_000, host=this.host, pid=2**22 + 1)], {}, NOW
    )
    assert (found.failed, found.missing) == ([gone], 2)
    assert platform.instance.get_run_by_id(gone).status is dg.DagsterRunStatus.FAILURE


def test_a_silent_follower_is_replaced_at_once_and_failed_after_a_while(
    platform: Platform,
) -> None:
    run = a_follower(platform.instance)
    beats = [a_beat(run, 60_000)]
    found = supervise(platform.instance, beats, {}, NOW)
    assert (found.missing, found.failed, found.silent) == (2, [], {run: NOW})
    later = supervise(platform.instance, beats, found.silent, NOW + 50)
    assert later.failed == [run]


def test_a_follower_that_is_heard_of_again_is_left_alone(platform: Platform) -> None:
    run = a_follower(platform.instance)
    found = supervise(platform.instance, [a_beat(run, 60_000)], {}, NOW)
    found = supervise(platform.instance, [a_beat(run, 1_000)], found.silent, NOW + 100)
    assert (found.failed, found.silent, found.missing) == ([], {}, 1)


def test_keys_are_pruned_to_the_newest_and_the_unmirrored(platform: Platform) -> None:
    keys = TableKeys("sales.orders")
    state = a_state(head_version=1_500, mirrored_version=1_500)
    old = [str(version) for version in range(1_501)]
    platform.instance.add_dynamic_partitions(keys.versions, old)
    assert len(prune_keys(platform.instance, state, at_most=100)) == 100
    prune_keys(platform.instance, state, at_most=1_000)
    kept = platform.instance.get_dynamic_partitions(keys.versions)
    assert (kept[0], kept[-1], len(kept)) == ("501", "1500", KEPT_KEYS)
    assert oldest_kept(a_state(head_version=5_000, mirrored_version=20)) == 21


def test_a_long_history_gets_keys_for_its_newest_versions_only(platform: Platform) -> None:
    state = a_state(head_version=50_000, mirrored_version=50_000)
    assert add_new_keys(platform.instance, [state], {}) == {"sales.orders": 50_000}
    keys = platform.instance.get_dynamic_partitions(TableKeys("sales.orders").versions)
    assert (keys[0], len(keys)) == ("49001", KEPT_KEYS)


def test_lag_beats_come_only_inside_the_objective(platform: Platform) -> None:
    keys, clock = platform.table(commits=1), [0.0]
    recorded: list[dg.AssetMaterialization] = []
    beats = LagBeats(load_settings().settings, recorded.append, clock=lambda: clock[0])
    assert beats._beat_one(a_state(lag_ms=9_000), 30)
    assert not beats._beat_one(a_state(lag_ms=9_000), 30), "not again at once"
    clock[0] = 31
    assert beats._beat_one(a_state(), 30), "an idle table stays fresh"
    clock[0] = 62
    assert not beats._beat_one(a_state(lag_ms=11_000), 30)
    assert not beats._beat_one(a_state(state="DIVERGED"), 30)
    clock[0] = 63
    assert beats._beat_one(a_state(state="PAUSED"), 30), "back at once"
    assert [event.asset_key for event in recorded] == [keys.mirror_lag] * 3


def test_what_was_never_checked_is_asked_for_once(platform: Platform) -> None:
    keys = platform.table(commits=1)
    answer = tick(platform, "first_checks")
    assert [request.job_name for request in answer.run_requests] == ["platform_checks"]
    platform.world.mirror().settle(patience_s=5)
    answer = tick(platform, "first_checks", answer.cursor)
    (request,) = answer.run_requests
    assert (request.job_name, request.asset_selection) == ("conformance", [keys.delta_log])
    again = tick(platform, "first_checks", answer.cursor)
    assert not again.run_requests
    assert "sales/orders/delta_log" in again.skip_message
    platform.materialize(keys.delta_log)
    platform.definitions().resolve_job_def("platform_checks").execute_in_process(
        instance=platform.instance
    )
    assert tick(platform, "first_checks").skip_message == "everything was checked before"


def test_first_checks_say_why_they_wait_for_a_metastore_that_went_away(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.table(commits=1)
    shown = platform.definitions().get_repository_def()
    monkeypatch.setenv("MIRROR_METASTORE_URL", "postgresql://me:secret@127.0.0.1:1/none")
    context = dg.build_sensor_context(
        instance=platform.instance, repository_def=shown, resources={"access": MirrorAccess()}
    )
    message = shown.get_sensor_def("first_checks").evaluate_tick(context).skip_message
    assert message.startswith("the metastore does not answer: MA-101")
    assert "secret" not in message


def test_an_alert_is_sent_once_per_change() -> None:
    first = {"sales/orders/delta_log:gapless": "failed", "sales/orders/mirror_lag": "pass"}
    (alert,) = changes({}, first, "http://d").values()
    assert (alert.kind, alert.state) == ("check", "failed")
    assert alert.url == "http://d/assets/sales/orders/delta_log"
    assert changes(first, first, "http://d") == {}
    later = {"sales/orders/delta_log:gapless": "passed", "sales/orders/mirror_lag": "warn"}
    assert [a.state for a in changes(first, later, "http://d").values()] == ["passed", "warn"]


def test_the_alerts_sensor_tells_of_a_failed_check_and_of_its_recovery(
    platform: Platform, webserver: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, posted = webserver
    monkeypatch.setenv("MIRROR_ALERT_WEBHOOK", url)
    keys = platform.table(commits=2)
    platform.world.mirror().settle(patience_s=5)
    file = platform.root / keys.table / "_delta_log" / f"{1:020}.json"
    content = file.read_bytes()
    file.unlink()
    platform.materialize(keys.delta_log)
    answer = tick(platform, "alerts")
    assert "sales/orders/delta_log gapless" in {alert["subject"] for alert in posted}
    told = len(posted)
    answer = tick(platform, "alerts", answer.cursor)
    assert len(posted) == told
    file.write_bytes(content)
    platform.materialize(keys.delta_log)
    tick(platform, "alerts", answer.cursor)
    assert {alert["state"] for alert in posted[told:]} == {"passed"}


def test_only_what_the_webhook_did_not_take_is_sent_again(
    platform: Platform, webserver: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, posted = webserver
    monkeypatch.setenv("MIRROR_ALERT_WEBHOOK", url)
    for name in ("sales.orders", "sales.returns"):
        keys = platform.table(name, commits=1)
        platform.world.mirror().settle(patience_s=5)
        (platform.root / name / "_delta_log" / f"{1:020}.json").unlink()
        platform.materialize(keys.delta_log)
    posted.refuse_from = 2
    answer = tick(platform, "alerts")
    assert "sent again" in answer.skip_message
    posted.refuse_from = None
    tick(platform, "alerts", answer.cursor)
    subjects = [alert["subject"] for alert in posted]
    assert len(subjects) == len(set(subjects)) > 2


def test_an_alert_says_what_to_do(webserver: tuple[str, list[Any]]) -> None:
    url, posted = webserver
    alert = Alert(kind="run", subject="s", state="failed", message="m", remedy="r", url="u")
    notify([alert], url)
    assert posted[0]["text"] == "s: run failed. m Remedy: r u"
