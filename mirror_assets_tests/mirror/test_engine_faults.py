"""The engine with stores and databases that fail: waits, breakers, and recovery by itself."""

from __future__ import annotations

import threading
import time
from threading import Event
from typing import TYPE_CHECKING

import pytest
import time_machine

from mirror_assets.errors import (
    DatabaseUnavailableError,
    MirrorAssetsError,
    StoreAuthError,
    StoreThrottledError,
    StoreUnavailableError,
)
from mirror_assets.metastore.breaker_store import read_breakers
from mirror_assets.metastore.mirror_queue import MirrorQueue
from mirror_assets.mirror.breakers import BreakerOpenError, Breakers
from mirror_assets.mirror.engine import EngineSettings, MirrorEngine
from mirror_assets.mirror.resilience import QUICKLY, STRATEGIES, failure_of, wait_ms
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import a_metastore, add, commit
from mirror_assets_tests.mirror.mirroring import Flaky, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOWN = StoreUnavailableError("no answer")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        yield World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))


def engine_of(world: World, store: Flaky, breakers: Breakers) -> MirrorEngine:
    queue = MirrorQueue(world.metastore)
    return MirrorEngine(queue, lambda _: store, breakers, owner="test")


def test_a_transient_failure_is_recorded_and_tried_again_later(world: World) -> None:
    name = world.table("db.t", commits=1)
    store = Flaky(world.store(name), script=[None, DOWN])
    mirror = world.flaky_mirror(store)
    mirror.engine.run_until_idle()
    state = world.state(name)
    assert (state.state, state.reason, state.mirrored_version) == ("FAILED", "transient", 0)
    assert "no answer" in (state.last_error or "")
    assert state.attempts == 1
    mirror.settle(patience_s=10)
    world.assert_mirrored(name)
    after = world.state(name)
    assert (after.state, after.reason, after.lag_ms) == ("OK", None, 0)
    assert after.last_error is None


def test_a_store_that_says_how_long_to_wait_is_left_alone_that_long(world: World) -> None:
    name = world.table("db.t")
    slow_down = StoreThrottledError("slow down", retry_after_s=30)
    mirror = world.flaky_mirror(Flaky(world.store(name), script=[slow_down]))
    mirror.engine.run_until_idle()
    state = world.state(name)
    assert (state.reason, state.next_attempt_in_ms > 25_000) == ("throttled", True)
    assert mirror.engine.run_until_idle() == []


def test_waits_grow_with_failures_and_stay_bounded() -> None:
    assert all(QUICKLY[0] // 5 <= wait_ms(QUICKLY, 0) <= QUICKLY[0] for _ in range(100))
    assert max(wait_ms(QUICKLY, 4) for _ in range(200)) > QUICKLY[0] * 4
    assert all(wait_ms(QUICKLY, 500) <= QUICKLY[1] for _ in range(100))


@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_class_of_errors_has_a_reason_and_either_a_wait_or_a_state(
    kind: type[MirrorAssetsError],
) -> None:
    failure = failure_of(kind("because"), 3, failures=0)
    assert failure.reason_code
    assert failure.stop_state is not None or failure.retry_in_ms > 0


def test_the_breaker_opens_after_failures_and_closes_by_itself(world: World) -> None:
    names = [world.table(f"db.t{number}") for number in range(8)]
    store = Flaky(world.store(names[0]), script=[DOWN] * 100)
    breakers = Breakers(world.metastore, failures=3, pause_seconds=0.5)
    engine = engine_of(world, store, breakers)
    engine.run_once()
    (row,) = read_breakers(world.metastore)
    assert row.state == "open"

    asked = store.asked
    for _ in range(3):
        world.forget_wait()
        engine.run_once()
    assert store.asked - asked <= 1, "an open breaker lets at most one through"

    store.script.clear()
    time.sleep(0.6)
    deadline = time.monotonic() + 20
    while any(world.state(name).lag_versions for name in names[:1]):
        assert time.monotonic() < deadline
        world.forget_wait()
        engine.run_once(names[:1])
    (row,) = read_breakers(world.metastore)
    assert (row.state, row.failures) == ("closed", 0)


def test_an_open_breaker_marks_no_version_as_tried(world: World) -> None:
    name = world.table("db.t")
    store = Flaky(world.store(name), script=[StoreAuthError("who are you")])
    breakers = Breakers(world.metastore, failures=3, pause_seconds=60)
    engine = engine_of(world, store, breakers)
    engine.run_once()
    for _ in range(3):
        world.forget_wait()
        engine.run_once()
    state = world.state(name)
    assert (state.reason, state.attempts, store.asked) == ("auth", 1, 1)


def test_a_success_beside_an_opening_breaker_is_no_failure(world: World) -> None:
    breakers = Breakers(world.metastore, failures=1, pause_seconds=60)
    location = world.location("t")
    begun, opened = Event(), Event()
    seen: list[BaseException] = []

    def succeed_late() -> None:
        try:
            with breakers.guard(location):
                begun.set()
                opened.wait(10)
        except BaseException as error:  # noqa: BLE001 - what a thread raises is lost otherwise
            seen.append(error)

    thread = threading.Thread(target=succeed_late)
    thread.start()
    begun.wait(10)
    with pytest.raises(StoreAuthError), breakers.guard(location):
        raise StoreAuthError("no")
    opened.set()
    thread.join()
    assert seen == []
    with pytest.raises(BreakerOpenError), breakers.guard(location):
        pass


def test_a_breaker_that_another_worker_opened_is_noticed_within_a_second(world: World) -> None:
    location = world.location("t")
    ours, theirs = (Breakers(world.metastore, pause_seconds=60) for _ in range(2))
    with ours.guard(location):
        pass
    with pytest.raises(StoreAuthError), theirs.guard(location):
        raise StoreAuthError("no")
    time.sleep(1.1)
    assert not ours.is_closed(location)
    with pytest.raises(BreakerOpenError), ours.guard(location):
        pass


def test_a_clock_that_was_ahead_keeps_no_breaker_open(world: World) -> None:
    """Opened by a host whose clock is a day ahead: others wait for the pause, not for the day."""
    location = world.location("t")
    with time_machine.travel(time.time() + 86_400, tick=True):
        ahead = Breakers(world.metastore, failures=1, pause_seconds=0.3)
        with pytest.raises(StoreAuthError), ahead.guard(location):
            raise StoreAuthError("no")
    breakers = Breakers(world.metastore, failures=1, pause_seconds=0.3)
    with pytest.raises(BreakerOpenError) as raised, breakers.guard(location):
        pass
    assert raised.value.retry_after_s <= 0.3
    time.sleep(0.4)
    with breakers.guard(location):
        pass


def test_a_renewal_that_fails_does_not_end_the_renewing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = world.table("db.t")
    calls: list[int] = []
    renew = MirrorQueue.renew

    def failing_once(self: MirrorQueue, owner: str, *, lease_ms: int) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise DatabaseUnavailableError("away")
        renew(self, owner, lease_ms=lease_ms)

    monkeypatch.setattr(MirrorQueue, "renew", failing_once)
    store = Flaky(world.store(name), before=lambda: time.sleep(0.8))
    world.flaky_mirror(store, settings=EngineSettings(lease_ms=600)).engine.run_until_idle()
    assert len(calls) > 1
    world.assert_mirrored(name)


def test_a_bug_in_one_table_stops_no_other(world: World) -> None:
    bad, good = world.table("db.bad"), world.table("db.good")

    def open_log(location: str) -> object:
        if location.endswith("bad"):
            raise RuntimeError("a bug")
        return world.store(good)

    world.mirror(open_log=open_log).engine.run_until_idle()
    world.assert_mirrored(good)
    state = world.state(bad)
    assert (state.state, state.reason) == ("FAILED", "unknown")


def test_a_round_that_is_told_to_stop_gives_back_what_it_has_not_begun(world: World) -> None:
    names = [world.table(f"db.t{number}") for number in range(3)]
    stop = Event()
    store = Flaky(world.store(names[0]), before=stop.set)
    settings = EngineSettings(threads=1)
    engine = world.flaky_mirror(store, settings=settings).engine
    results = engine.run_once(stop=stop)
    assert [len(result.published) for result in results] == [1, 0, 0]
    world.mirror().engine.run_until_idle()
    for name in names[1:]:
        world.assert_mirrored(name)


def test_a_long_round_records_what_it_has(world: World) -> None:
    names = [world.table(f"db.t{number}") for number in range(6)]
    store = Flaky(world.store(names[0]), before=lambda: time.sleep(0.15))
    settings = EngineSettings(threads=1, round_ms=200)
    results = world.flaky_mirror(store, settings=settings).engine.run_once()
    assert 1 <= sum(len(result.published) for result in results) < 6


def test_settle_waits_for_a_table_that_another_mirror_holds(world: World) -> None:
    name = world.table("db.t", commits=1)
    MirrorQueue(world.metastore).claim("dead", tables=None, limit=1, lease_ms=700)
    assert world.mirror().settle(patience_s=0) == []
    world.mirror().settle(patience_s=10)
    world.assert_mirrored(name)


def test_settle_comes_to_an_end_while_others_go_on_committing(world: World) -> None:
    name = world.table("db.t", commits=1)
    number = iter(range(10_000))

    def commit_more() -> None:
        commit(world.metastore, name, add(f"more-{next(number)}.parquet"))

    store = Flaky(world.store(name), before=commit_more)
    world.flaky_mirror(store).settle(patience_s=10)
    assert world.state(name).mirrored_version >= 1
