"""What a follower says about failures: once, to the one who can help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from mirror_assets.errors import (
    StoreAuthError,
    StoreConfigError,
    StoreThrottledError,
    StoreUnavailableError,
)
from mirror_assets.metastore.dialect import RetryableError
from mirror_assets.metastore.mirror_queue import Claim, ClaimResult, Published
from mirror_assets.mirror.engine import EngineSettings
from mirror_assets.mirror.escalation import Escalations
from mirror_assets.mirror.resilience import THROTTLED_MS, failure_of
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore:
        yield World(metastore, str(tmp_path / "lake"), StoreOptions(durable=False))


def failing(name: str, error: Exception, *, bucket: str = "lake") -> ClaimResult:
    claim = Claim(
        first_version=0,
        table_id=1,
        name=name,
        location=f"s3://{bucket}/{name}",
        fence=1,
        mirrored_version=0,
        head_version=1,
        failures=0,
        claimed_at_ms=0,
    )
    return ClaimResult(claim=claim, failure=failure_of(error, 1, 0))


def passing(name: str) -> ClaimResult:
    result = failing(name, StoreAuthError("denied"))
    result.failure = None
    result.published = [Published(version=1, resolved_by="put", published_at_ms=1, lag_ms=1)]
    return result


def told(escalations: Escalations, *results: ClaimResult) -> list[dict]:
    with capture_logs() as logs:
        escalations.tell(results)
    return [entry for entry in logs if entry["log_level"] in ("warning", "error")]


def test_what_a_person_must_mend_is_said_once_for_the_whole_store():
    escalations = Escalations()
    denied = [failing(f"db.t{number}", StoreAuthError("denied")) for number in range(50)]

    (said,) = told(escalations, *denied)
    assert (said["event"], said["scope"], said["tables"]) == ("needs_a_person", "s3://lake", 50)
    assert said["remedy"] == StoreAuthError.default_remedy
    assert told(escalations, *denied) == []
    (other,) = told(escalations, failing("db.o", StoreAuthError("denied"), bucket="other"))
    assert other["scope"] == "s3://other"


def test_it_is_said_again_after_it_had_passed():
    escalations = Escalations()
    denied = failing("db.t", StoreAuthError("denied"))
    told(escalations, denied)
    assert told(escalations, passing("db.t")) == []

    assert [said["event"] for said in told(escalations, denied)] == ["needs_a_person"]


def test_what_is_wrong_with_a_table_is_said_of_the_table():
    escalations = Escalations()
    first, second = (failing(f"db.{name}", StoreConfigError("no bucket")) for name in "ab")

    assert [said["scope"] for said in told(escalations, first, second)] == ["db.a", "db.b"]


def test_what_passes_by_itself_is_one_warning_per_round():
    away = [failing(f"db.t{number}", StoreUnavailableError("away")) for number in range(50)]

    (said,) = told(Escalations(), *away)
    assert (said["event"], said["tables"]) == ("publish_failed", 50)


def test_a_store_that_throttles_is_left_alone_for_as_long_as_it_says_or_a_second():
    said = failure_of(StoreThrottledError("slow down", retry_after_s=17), 1, 0)
    silent = [failure_of(StoreThrottledError("slow down"), 1, 0) for _ in range(50)]

    assert said.retry_in_ms >= 17_000
    assert min(failure.retry_in_ms for failure in silent) >= THROTTLED_MS


def test_a_record_that_the_database_rolled_back_is_written_again(world, monkeypatch):
    name = world.table("db.t", commits=2)
    mirror = world.mirror(settings=EngineSettings(threads=1))
    write, failures = type(world.metastore).write, [RetryableError("deadlock")] * 3

    def deadlocking(self):
        if failures:
            raise failures.pop()
        return write(self)

    monkeypatch.setattr(type(world.metastore), "write", deadlocking)
    mirror.settle(patience_s=5)

    assert failures == []
    world.assert_mirrored(name)
