"""Follower runs: one publishes, one stands by, and the role passes on."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import dagster as dg

from mirror_assets.defs.follow import follow
from mirror_assets.defs.follower_run import FollowerName, FollowerRun
from mirror_assets.defs.heartbeats import LagBeats
from mirror_assets.defs.reporting import RunlessEvents
from mirror_assets.metastore.followers import read_followers
from mirror_assets.metastore.role_lease import RoleLease
from mirror_assets.settings import load_settings
from mirror_assets_tests.defs.dagster_dev import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_assets.metastore.database import Metastore
    from mirror_assets_tests.defs.platform import Platform


class BrokenEvents(RunlessEvents):
    """An event log that does not take anything."""

    def record(self, events: Any) -> None:
        raise OSError(f"no room for {len(events)} events")


def a_run(platform: Platform, number: int, seconds: float = 3_600, **options: Any) -> FollowerRun:
    owner = str(FollowerName.of_this_process(f"run-{number}"))
    fields = {
        "events": RunlessEvents(platform.instance),
        "lag_beats": LagBeats(
            load_settings().settings, platform.instance.report_runless_asset_event
        ),
        "seconds": seconds,
        "say": lambda _: None,
        "is_wanted": lambda: True,
    }
    return FollowerRun(platform.world.mirror(owner=owner), **fields | options)


@contextmanager
def running(run: FollowerRun) -> Iterator[Event]:
    stop = Event()
    thread = Thread(target=run.run, args=(stop,))
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


def is_mirrored(platform: Platform, table: str) -> bool:
    return platform.world.state(table).lag_versions == 0


def test_a_follower_publishes_reports_and_beats(platform: Platform) -> None:
    keys = platform.table(commits=3)
    with running(a_run(platform, 1)):
        wait_for(lambda: platform.green(keys.commits) == [0, 1, 2, 3], 30, "the report")
        platform.commit(keys, 4)
        wait_for(lambda: platform.green(keys.commits) == [0, 1, 2, 3, 4], 30, "the next one")
        beats = platform.instance.fetch_materializations(keys.mirror_lag, limit=5).records
    platform.world.assert_mirrored(keys.table)
    assert beats[0].asset_materialization.metadata["lag_versions"].value == 0
    assert read_followers(platform.metastore) == []


def test_the_standby_takes_over_when_the_active_one_ends(platform: Platform) -> None:
    keys = platform.table(commits=1)
    first, second = a_run(platform, 1), a_run(platform, 2)
    with running(first) as stop:
        wait_for(lambda: first.was_active, 30, "the first to be active")
        with running(second):
            wait_for(lambda: len(read_followers(platform.metastore)) == 2, 30, "both to beat")
            assert not second.was_active
            stop.set()
            wait_for(lambda: second.was_active, 30, "the second to be active")
            platform.commit(keys, 2)
            wait_for(lambda: is_mirrored(platform, keys.table), 30, "it to publish")
    platform.world.assert_mirrored(keys.table)


def test_a_follower_whose_time_is_up_waits_for_a_successor(platform: Platform) -> None:
    platform.table()
    first, second = a_run(platform, 1, seconds=3), a_run(platform, 2)
    with running(first):
        wait_for(lambda: first.was_active, 30, "the first to be active")
        time.sleep(3.2)
        assert not second.was_active
        with running(second):
            wait_for(lambda: second.was_active, 30, "the hand-over")


def test_an_event_log_that_fails_does_not_hold_up_publishing(platform: Platform) -> None:
    keys = platform.table(commits=2)
    with running(a_run(platform, 1, events=BrokenEvents(platform.instance))):
        wait_for(lambda: is_mirrored(platform, keys.table), 30, "publishing")
    assert platform.green(keys.commits) == []
    with running(a_run(platform, 2)):
        wait_for(lambda: platform.green(keys.commits) == [0, 1, 2], 30, "the later report")


def test_a_run_that_dagster_gave_up_ends(platform: Platform) -> None:
    platform.table()
    run = a_run(platform, 1, is_wanted=lambda: False)
    run.run(Event())
    assert not run.was_active


def test_the_job_ends_in_order_when_its_metastore_is_replaced(platform: Platform) -> None:
    keys = platform.table(commits=1)
    file = platform.metastore.file
    defs = dg.Definitions.merge(platform.definitions())

    def replace() -> None:
        wait_for(lambda: is_mirrored(platform, keys.table), 30, "publishing")
        file.rename(file.with_suffix(".old"))

    thread = Thread(target=replace)
    thread.start()
    done = defs.resolve_job_def(follow.name).execute_in_process(instance=platform.instance)
    thread.join()
    assert done.success


def lease(metastore: Metastore, owner: str, lease_ms: int = 60_000) -> RoleLease:
    return RoleLease(metastore=metastore, role="r", owner=owner, lease_ms=lease_ms)


def test_a_role_has_one_holder_until_it_lapses_or_is_given_back(metastore: Metastore) -> None:
    first, second = lease(metastore, "a"), lease(metastore, "b")
    assert first.hold()
    assert first.hold()
    assert not second.hold()
    first.release()
    assert second.hold()
    assert not first.hold()
    second.release()
    assert lease(metastore, "dead", lease_ms=1).hold()
    time.sleep(0.05)
    assert first.hold()


def test_a_follower_is_known_by_its_run_host_and_process() -> None:
    name = FollowerName.of_this_process("1234-5678")
    assert FollowerName.parse(str(name)) == name
    assert not name.is_gone
    assert FollowerName.parse("host:12:abcdef") is None
