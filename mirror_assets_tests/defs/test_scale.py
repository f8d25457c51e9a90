"""Many tables: what a tick asks of the databases does not grow with them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
import sqlalchemy

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.heartbeats import LagBeats
from mirror_assets.defs.reporting import RunlessEvents
from mirror_assets.settings import load_settings
from mirror_assets_tests.defs.dagster_dev import wait_for
from mirror_assets_tests.defs.test_follower_run import a_run, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_assets_tests.defs.platform import Platform


@contextmanager
def statements() -> Iterator[list[str]]:
    """The SQL of everybody in this process, Dagster's own included."""
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)


def steady_tick(platform: Platform, name: str) -> list[str]:
    """The statements of a tick that finds nothing new: of the first that asks as the one before."""
    repository = platform.definitions().get_repository_def()
    sensor, cursor = repository.get_sensor_def(name), None
    seen: list[str] = []
    before: list[str] | None = None
    while before is None or len(before) != len(seen):
        before = seen
        context = dg.build_sensor_context(
            instance=platform.instance,
            cursor=cursor,
            repository_def=repository,
            resources={"access": MirrorAccess()},
        )
        with statements() as seen:
            cursor = sensor.evaluate_tick(context).cursor
    return seen


def grow(platform: Platform, first: int, last: int) -> None:
    beats = LagBeats(load_settings().settings, platform.instance.report_runless_asset_event)
    for number in range(first, last):
        platform.table(f"sales.t{number}", commits=3)
    platform.world.mirror().settle(patience_s=30)
    beats.beat(platform.metastore)


@pytest.mark.parametrize("drive", ["follower", "runs"])
def test_a_tick_asks_as_much_for_many_tables_as_for_few(
    platform: Platform, drive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_DRIVE", drive)
    names = ["sql_versions", "registry", "first_checks", "alerts"]
    grow(platform, 0, 2)
    few = {name: steady_tick(platform, name) for name in names}
    grow(platform, 2, 12)
    many = {name: steady_tick(platform, name) for name in names}
    assert {name: len(found) for name, found in many.items()} == {
        name: len(found) for name, found in few.items()
    }


def test_a_backlog_of_events_does_not_hold_up_the_heartbeats(platform: Platform) -> None:
    """An event log that takes a while for each event would else make all tables look late."""
    keys = platform.table(commits=150)
    platform.world.mirror().settle(patience_s=30)
    order: list[str] = []

    class Noted(RunlessEvents):
        def record(self, events: Any) -> None:
            order.extend("event" for _ in events)
            super().record(events)

    def beat(event: dg.AssetMaterialization) -> None:
        order.append("beat")
        platform.instance.report_runless_asset_event(event)

    lag_beats = LagBeats(load_settings().settings, beat)
    with running(a_run(platform, 1, events=Noted(platform.instance), lag_beats=lag_beats)):
        wait_for(lambda: len(platform.green(keys.commits)) == 151, 60, "the report")
    assert order.index("beat") <= 110
