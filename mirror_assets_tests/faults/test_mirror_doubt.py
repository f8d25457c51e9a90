"""The mirror behind the fault proxy: every doubt ends in SUCCESS or in a named state.

The rows of 'what the client sees vs what is stored', published by the engine: never a second
content, never a version that is called published and is not there.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from mirror_assets.metastore.breaker_store import read_breakers
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_queue import MirrorQueue
from mirror_assets.metastore.tables import dl_mirror_status
from mirror_assets.mirror.breakers import Breakers
from mirror_assets.mirror.engine import EngineSettings, MirrorEngine
from mirror_assets.storage.stores import open_store
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.faults.http_proxy import (
    Answer,
    Fault,
    FaultProxy,
    Hang,
    LandsLate,
    Reset,
    fault_proxy,
)
from mirror_assets_tests.faults.store_history import created, violations
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets_tests.store_services import S3Server

PAUSE_S = 0.5
TIMEOUT_S = 1.0


@pytest.fixture
def proxy(moto_s3: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(moto_s3.endpoint) as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, moto_s3: S3Server) -> Iterator[World]:
    """The truth: its stores are reached without the proxy."""
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        yield World(metastore, f"s3://{moto_s3.bucket}/{uuid.uuid4()}", moto_s3.options())


@pytest.fixture
def engine(world: World, proxy: FaultProxy) -> MirrorEngine:
    options = replace(world.options, endpoint=proxy.endpoint, request_timeout_s=TIMEOUT_S)
    return MirrorEngine(
        MirrorQueue(world.metastore),
        lambda location: open_store(location, options, allowed_roots=()),
        Breakers(world.metastore, pause_seconds=PAUSE_S),
        owner="test",
        settings=EngineSettings(lease_ms=1_000, threads=4),
    )


def recover(world: World, engine: MirrorEngine, *names: str) -> None:
    """Round after round without waits, until all is published."""
    deadline = time.monotonic() + 60
    while any(world.state(name).lag_versions for name in names):
        assert time.monotonic() < deadline
        time.sleep(PAUSE_S / 4)
        world.forget_wait()
        engine.run_once()


def assert_clean(world: World, proxy: FaultProxy, *names: str) -> None:
    world.assert_mirrored(*names)
    assert violations(proxy.history) == []
    frozen = {
        (n, c.version): c.sha256 for n in names for c in LogReader(world.metastore).commits(n)
    }
    assert created(proxy.history) == frozen


STORED: dict[str, Fault] = {
    "500": Answer(status=500, stored=True),
    "503": Answer(status=503, code="SlowDown", stored=True),
    "409": Answer(status=409, stored=True),
    "412": Answer(status=412, stored=True),
    "403": Answer(status=403, stored=True),
    "reset": Reset(stored=True),
    "hang": Hang(seconds=3, stored=True),
}


@pytest.mark.parametrize("fault", STORED.values(), ids=STORED)
def test_what_was_stored_is_a_success_at_once(
    world: World, engine: MirrorEngine, proxy: FaultProxy, fault: Fault
) -> None:
    name = world.table("db.t", commits=2)
    proxy.script("PUT", None, fault)

    engine.run_once()

    assert_clean(world, proxy, name)
    assert resolved_by(world, name) == ["put", "readback", "put"]
    assert proxy.count("PUT") == 3


NOT_STORED: dict[str, tuple[Fault, str]] = {
    "409": (Answer(status=409), "transient"),
    "500": (Answer(status=500), "transient"),
    "503": (Answer(status=503, code="ServiceUnavailable"), "transient"),
    "slow down": (Answer(status=503, code="SlowDown"), "throttled"),
    "429": (Answer(status=429), "throttled"),
    "reset": (Reset(), "transient"),
    "hang": (Hang(seconds=3), "transient"),
    "403": (Answer(status=403), "auth"),
    "400 skewed": (Answer(status=400, code="RequestTimeTooSkewed"), "clock_skew"),
    "403 skewed": (Answer(status=403, code="RequestTimeTooSkewed"), "clock_skew"),
    "404 bucket": (Answer(status=404, code="NoSuchBucket"), "config"),
    "507": (Answer(status=507, code="InsufficientStorage"), "storage_full"),
}


@pytest.mark.parametrize(("fault", "reason"), NOT_STORED.values(), ids=NOT_STORED)
def test_what_was_not_stored_has_its_reason_and_is_published_later(
    world: World, engine: MirrorEngine, proxy: FaultProxy, fault: Fault, reason: str
) -> None:
    name = world.table("db.t", commits=2)
    proxy.script("PUT", None, fault)

    engine.run_once()

    state = world.state(name)
    assert (state.state, state.reason, state.mirrored_version) == ("FAILED", reason, 0)
    assert f"{1:020}.json" in (state.last_error or "")
    assert list(world.store(name).list().commits) == [0]
    is_open = [row.state for row in read_breakers(world.metastore)] == ["open"]
    assert is_open == (reason in ("auth", "clock_skew"))
    recover(world, engine, name)
    assert_clean(world, proxy, name)


def test_a_store_that_has_no_conditions_stops_the_table(
    world: World, engine: MirrorEngine, proxy: FaultProxy
) -> None:
    name = world.table("db.t")
    proxy.script("PUT", Answer(status=501, code="NotImplemented"))

    engine.run_once()

    state = world.state(name)
    assert (state.state, state.mirrored_version) == ("PAUSED", -1)
    assert world.store(name).list().is_empty


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    "failure", [Answer(status=500), Reset(), Hang(seconds=3)], ids=["500", "reset", "hang"]
)
def test_a_read_back_that_fails_is_repeated_and_nothing_is_overwritten(
    world: World, engine: MirrorEngine, proxy: FaultProxy, *, failure: Fault, stored: bool
) -> None:
    name = world.table("db.t")
    proxy.script("PUT", Reset(stored=stored))
    # A new table is not listed before its first write: the first GET is the read-back.
    proxy.script("GET", failure)

    engine.run_once()

    state = world.state(name)
    assert (state.state, state.reason, state.mirrored_version) == ("FAILED", "transient", -1)
    assert "unknown whether it is stored" in (state.last_error or "")
    recover(world, engine, name)
    assert_clean(world, proxy, name)
    assert resolved_by(world, name) == ["readback" if stored else "put"]


@pytest.mark.parametrize("lands_first", [False, True])
def test_a_write_that_lands_late_changes_nothing(
    world: World, engine: MirrorEngine, proxy: FaultProxy, lands_first: bool
) -> None:
    name = world.table("db.t", commits=1)
    late = LandsLate()
    proxy.script("PUT", late)
    engine.run_once()
    assert world.state(name).reason == "transient"
    assert world.store(name).list().is_empty

    if lands_first:
        late.landing.set()
        assert late.landed.wait(10)
    recover(world, engine, name)
    late.landing.set()
    assert late.landed.wait(10)

    assert_clean(world, proxy, name)


def test_a_bucket_that_does_not_exist_is_a_matter_of_settings(
    world: World, engine: MirrorEngine, proxy: FaultProxy
) -> None:
    name = world.table("db.t")
    lost = World(world.metastore, "s3://nobody-made-this-bucket", world.options)
    lost.table("db.lost")

    engine.run_once()

    state = world.state("db.lost")
    assert (state.state, state.reason) == ("FAILED", "config")
    assert "NoSuchBucket" in (state.last_error or "")
    world.assert_mirrored(name)


@pytest.mark.parametrize("status", [503, 403])
def test_a_storm_opens_the_breaker_and_the_load_falls(
    world: World, engine: MirrorEngine, proxy: FaultProxy, status: int
) -> None:
    names = [world.table(f"db.t{number}", commits=3) for number in range(12)]
    proxy.always = Answer(status=status)
    engine.run_once()
    assert [row.state for row in read_breakers(world.metastore)] == ["open"]
    at_first = len(proxy.seen)

    end = time.monotonic() + 6 * PAUSE_S
    while time.monotonic() < end:
        world.forget_wait()
        engine.run_once()

    # Each pause ends with one try, of a handful of requests; a round of all would be dozens.
    assert len(proxy.seen) - at_first <= 6 * 4
    assert sum(world.state(name).attempts for name in names) < 2 * len(names)
    proxy.always = None
    recover(world, engine, *names)
    assert_clean(world, proxy, *names)
    assert [row.state for row in read_breakers(world.metastore)] == ["closed"]


def resolved_by(world: World, name: str) -> list[str]:
    """How each version came to be known as published, oldest first."""
    status = dl_mirror_status
    query = select(status.c.resolved_by).where(
        status.c.table_id == LogReader(world.metastore).table(name).table_id,
        status.c.artifact == "commit",
    )
    with world.metastore.read() as connection:
        return list(connection.execute(query.order_by(status.c.version)).scalars())
