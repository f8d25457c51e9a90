"""Followers and single runs as processes: killed, stopped and cut off from their store.

What is checked afterwards is read from the store and from SQL by this program: every commit file
has the digest that SQL froze, there is no gap, and every version is a SUCCESS.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from mirror_assets.metastore.breaker_store import read_breakers
from mirror_assets.metastore.outcomes import Committed
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.faults.http_proxy import Reset, fault_proxy
from mirror_assets_tests.faults.processes import (
    a_writer,
    is_caught_up,
    mirrors,
    s3_environment,
    until,
)
from mirror_assets_tests.faults.store_history import violations
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore
    from mirror_assets.metastore.mirror_state import MirrorState
    from mirror_assets_tests.store_services import S3Server

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")()
    return f"sqlite:///{tmp_path / 'metastore.db'}"


@pytest.fixture
def metastore(url: str) -> Iterator[Metastore]:
    with a_metastore(url) as opened:
        yield opened


@pytest.fixture
def world(metastore: Metastore, tmp_path: Path) -> World:
    (tmp_path / "lake").mkdir()
    return World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))


@pytest.mark.timeout(300)
def test_a_stopped_follower_that_wakes_after_its_lease_changes_nothing(
    world: World, url: str, tmp_path: Path
) -> None:
    names = [world.table(f"db.t{number}") for number in range(5)]
    with mirrors(url, tmp_path) as processes, a_writer(world, names, 0.02) as outcomes:
        asleep = processes.start("--follow")
        until(lambda: is_caught_up(world, names[:1]) and len(outcomes) > 20, 60)
        for _ in range(3):
            asleep.send_signal(signal.SIGSTOP)
            other = processes.start("--follow")
            time.sleep(6)
            asleep.send_signal(signal.SIGCONT)
            time.sleep(1)
            other.kill()
            other.wait()
        assert asleep.poll() is None
        asleep.send_signal(signal.SIGTERM)
        assert asleep.wait(30) == 0
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    world.mirror().settle(patience_s=60)
    world.assert_mirrored(*names)


@pytest.mark.timeout(300)
def test_a_store_that_is_away_for_a_while_costs_no_commit(
    world: World, url: str, tmp_path: Path
) -> None:
    names = [world.table(f"db.t{number}") for number in range(10)]
    lake, away = tmp_path / "lake", tmp_path / "away"
    with mirrors(url, tmp_path) as processes, a_writer(world, names, 0.03) as outcomes:
        follower = processes.start("--follow")
        until(lambda: world.state(names[0]).mirrored_version > 2, 60)
        lake.rename(away)
        lake.write_text("nothing to see here")
        time.sleep(8)
        late = [world.state(name) for name in names]
        lake.unlink()
        away.rename(lake)
        returned = len(outcomes)
        until(lambda: len(outcomes) > returned + 20, 60)
        until(
            lambda: all(
                world.state(n).mirrored_version > s.head_version
                for n, s in zip(names, late, strict=True)
            ),
            120,
        )
        assert follower.poll() is None
    assert all(isinstance(outcome, Committed) for outcome in outcomes)
    assert any(state.lag_ms > 3_000 and state.last_error for state in late)
    world.mirror().settle(patience_s=60)
    world.assert_mirrored(*names)


@pytest.mark.timeout(600)
def test_while_an_s3_store_is_away_the_breaker_is_open_and_the_load_falls(
    metastore: Metastore, url: str, tmp_path: Path, moto_s3: S3Server
) -> None:
    lasts = float(os.environ.get("MIRROR_TEST_AWAY_SECONDS", "10"))
    with fault_proxy(moto_s3.endpoint) as proxy:
        root = f"s3://{moto_s3.bucket}/{uuid.uuid4()}"
        world = World(metastore, root, moto_s3.options())
        names = [world.table(f"db.t{number}") for number in range(10)]
        environment = s3_environment(moto_s3, root, proxy.endpoint)
        with mirrors(url, tmp_path, environment) as processes, a_writer(world, names, 0.05) as done:
            processes.start("--follow")
            until(lambda: world.state(names[0]).mirrored_version > 1, 60)
            proxy.always = Reset()
            until(lambda: [row.state for row in read_breakers(metastore)] == ["open"], 60)
            attempts = sum(world.state(name).attempts for name in names)
            time.sleep(2)  # what was under way has ended
            requests, committed = len(proxy.seen), len(done)
            time.sleep(lasts)
            late = [world.state(name) for name in names]
            # One try for every pause of 15 s, of at most three requests for each of two questions.
            assert len(proxy.seen) - requests <= 6 * (1 + lasts / 15)
            # Of those that were under way each has failed once, and then the tries.
            assert sum(state.attempts for state in late) - attempts <= len(names) + lasts / 15
            assert max(state.lag_ms for state in late) > 0.8 * lasts * 1000
            assert len(done) > committed
            assert any("cut off" in (state.last_error or "") for state in late)
            proxy.always = None
            until(lambda: all(map(_is_past, (world.state(name) for name in names), late)), 120)
        assert all(isinstance(outcome, Committed) for outcome in done)
        world.mirror().settle(patience_s=60)
        world.assert_mirrored(*names)
        assert violations(proxy.history) == []
        assert [row.state for row in read_breakers(metastore)] == ["closed"]


def _is_past(now: MirrorState, then: MirrorState) -> bool:
    return now.mirrored_version > then.head_version
