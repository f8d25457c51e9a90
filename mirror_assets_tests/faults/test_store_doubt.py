"""What the client sees against what is stored: never a second content, always a way on.

Every row of the table in `../shared/faults.md`, through a proxy in front of a correct server.
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror_assets.delta.log_paths import ClassicCheckpoint, CommitName, LastCheckpoint
from mirror_assets.errors import (
    ClockSkewError,
    MirrorAssetsError,
    PermanentError,
    StorageFullError,
    StoreAuthError,
    StoreConfigError,
    StoreThrottledError,
    StoreUnavailableError,
    TransientError,
    UnsafeStoreError,
)
from mirror_assets.storage.log_store import Created, Different, Identical, Moved, Replaced
from mirror_assets_tests.faults.http_proxy import (
    Answer,
    Fault,
    FaultProxy,
    Hang,
    LandsLate,
    Reset,
    fault_proxy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror_assets.storage.log_store import LogStore
    from mirror_assets_tests.store_services import S3Server, StorePlace

OURS, THEIRS = b'{"commitInfo":{"n":1}}\n', b'{"commitInfo":{"n":2}}\n'
V0 = CommitName(0)
TIMEOUT_S = 1.0


@pytest.fixture
def proxy(moto_s3: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(moto_s3.endpoint) as running:
        yield running


@pytest.fixture
def place(moto_s3: S3Server) -> StorePlace:
    return moto_s3.place()


@pytest.fixture
def behind(place: StorePlace) -> LogStore:
    """The truth: the same log without the proxy."""
    return place.open()


@pytest.fixture
def store(place: StorePlace, proxy: FaultProxy) -> LogStore:
    return through(place, proxy)


def through(place: StorePlace, proxy: FaultProxy) -> LogStore:
    options = replace(
        place.options, endpoint=proxy.endpoint, request_timeout_s=TIMEOUT_S, large_timeout_s=5
    )
    return replace(place, options=options).open()


NOT_STORED: list[tuple[str, Fault, type[MirrorAssetsError]]] = [
    ("409", Answer(status=409), StoreUnavailableError),
    ("412 of a store that holds nothing", Answer(status=412), StoreUnavailableError),
    ("500", Answer(status=500), StoreUnavailableError),
    ("503", Answer(status=503, code="ServiceUnavailable"), StoreUnavailableError),
    ("503 slow down", Answer(status=503, code="SlowDown"), StoreThrottledError),
    ("429", Answer(status=429), StoreThrottledError),
    ("reset", Reset(), StoreUnavailableError),
    ("hang", Hang(seconds=3), StoreUnavailableError),
    ("403", Answer(status=403), StoreAuthError),
    ("401", Answer(status=401, code="Unauthorized"), StoreAuthError),
    ("400 skewed", Answer(status=400, code="RequestTimeTooSkewed"), ClockSkewError),
    ("403 skewed", Answer(status=403, code="RequestTimeTooSkewed"), ClockSkewError),
    ("404 bucket", Answer(status=404, code="NoSuchBucket"), StoreConfigError),
    ("501", Answer(status=501, code="NotImplemented"), UnsafeStoreError),
    ("507", Answer(status=507, code="InsufficientStorage"), StorageFullError),
]


@pytest.mark.parametrize(
    ("fault", "error"), [row[1:] for row in NOT_STORED], ids=[row[0] for row in NOT_STORED]
)
def test_a_create_that_stored_nothing_is_the_named_error_and_succeeds_later(
    store: LogStore,
    behind: LogStore,
    proxy: FaultProxy,
    *,
    fault: Fault,
    error: type[MirrorAssetsError],
) -> None:
    proxy.script("PUT", fault)

    with pytest.raises(error) as raised:
        store.put_if_absent(V0, OURS)

    assert type(raised.value) is error
    assert V0.name in raised.value.message
    assert proxy.count("PUT") == 1  # nobody tries again behind our back
    assert behind.read(V0) is None
    assert store.put_if_absent(V0, OURS) == Created()
    assert behind.read(V0) == OURS


STORED: list[tuple[str, Fault]] = [
    ("500", Answer(status=500, stored=True)),
    ("503", Answer(status=503, code="SlowDown", stored=True)),
    ("409", Answer(status=409, stored=True)),
    ("412", Answer(status=412, stored=True)),
    ("403", Answer(status=403, stored=True)),
    ("reset", Reset(stored=True)),
    ("hang", Hang(seconds=3, stored=True)),
]


@pytest.mark.parametrize("fault", [row[1] for row in STORED], ids=[row[0] for row in STORED])
def test_a_create_that_was_stored_is_found_by_reading_back(
    store: LogStore, behind: LogStore, proxy: FaultProxy, fault: Fault
) -> None:
    proxy.script("PUT", fault)

    outcome = store.put_if_absent(V0, OURS)

    assert outcome == Identical()
    assert outcome.resolved_by == "readback"
    assert (proxy.count("PUT"), proxy.count("GET")) == (1, 1)
    assert behind.read(V0) == OURS


@pytest.mark.parametrize("fault", [row[1] for row in STORED], ids=[row[0] for row in STORED])
def test_a_foreign_file_is_told_from_our_own_in_every_doubt(
    store: LogStore, behind: LogStore, proxy: FaultProxy, fault: Fault
) -> None:
    behind.put_if_absent(V0, THEIRS)
    proxy.script("PUT", fault)

    assert isinstance(store.put_if_absent(V0, OURS), Different)

    assert behind.read(V0) == THEIRS


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Answer(status=500), StoreUnavailableError),
        (Reset(), StoreUnavailableError),
        (Hang(seconds=3), StoreUnavailableError),
        (Answer(status=503, code="SlowDown"), StoreThrottledError),
        (Answer(status=403), StoreAuthError),
    ],
    ids=["500", "reset", "hang", "slow down", "403"],
)
def test_a_read_back_that_fails_leaves_it_unknown_and_writes_nothing(
    store: LogStore,
    behind: LogStore,
    proxy: FaultProxy,
    *,
    failure: Fault,
    error: type[MirrorAssetsError],
    stored: bool,
) -> None:
    proxy.script("PUT", Reset(stored=stored))
    proxy.script("GET", failure)

    with pytest.raises(error, match="unknown whether it is stored"):
        store.put_if_absent(V0, OURS)

    assert proxy.count("PUT") == 1
    assert behind.read(V0) == (OURS if stored else None)
    assert store.put_if_absent(V0, OURS) == (Identical() if stored else Created())
    assert behind.read(V0) == OURS


def test_a_write_that_lands_after_the_read_back_is_met_as_identical(
    store: LogStore, behind: LogStore, proxy: FaultProxy
) -> None:
    late = LandsLate()
    proxy.script("PUT", late)
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent(V0, OURS)
    assert behind.read(V0) is None

    late.landing.set()
    assert late.landed.wait(10)

    assert store.put_if_absent(V0, OURS) == Identical()
    assert behind.read(V0) == OURS


def test_a_write_that_lands_after_the_second_one_changes_nothing(
    store: LogStore, behind: LogStore, proxy: FaultProxy
) -> None:
    late = LandsLate()
    proxy.script("PUT", late)
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent(V0, OURS)
    assert store.put_if_absent(V0, OURS) == Created()
    before = behind.list().commits[0]

    late.landing.set()
    assert late.landed.wait(10)

    assert behind.list().commits[0] == before
    assert behind.read(V0) == OURS


@pytest.mark.parametrize("stored", [False, True])
def test_doubt_about_a_large_file_is_resolved_the_same_way(
    store: LogStore, behind: LogStore, proxy: FaultProxy, tmp_path: Path, stored: bool
) -> None:
    file = tmp_path / "checkpoint"
    file.write_bytes(b"0123456789abcdef" * 600_000)
    proxy.script("PUT", Reset(stored=stored))

    if stored:
        assert store.put_file_if_absent(ClassicCheckpoint(0), file) == Identical()
    else:
        with pytest.raises(StoreUnavailableError):
            store.put_file_if_absent(ClassicCheckpoint(0), file)
        assert behind.size(ClassicCheckpoint(0)) is None
        assert store.put_file_if_absent(ClassicCheckpoint(0), file) == Created()

    assert behind.read(ClassicCheckpoint(0)) == file.read_bytes()


@pytest.mark.parametrize("fault", [row[1] for row in STORED], ids=[row[0] for row in STORED])
def test_a_pointer_that_was_stored_is_found_by_reading_back(
    store: LogStore, behind: LogStore, proxy: FaultProxy, fault: Fault
) -> None:
    behind.replace(LastCheckpoint(), b"old")
    proxy.script("PUT", fault)

    assert store.replace(LastCheckpoint(), b"new", over=b"old") == Replaced(resolved_by="readback")

    assert behind.read(LastCheckpoint()) == b"new"


@pytest.mark.parametrize("over", [{}, {"over": b"old"}])
def test_a_pointer_that_was_not_stored_is_an_error_and_the_old_one_stays(
    store: LogStore, behind: LogStore, proxy: FaultProxy, over: dict[str, bytes]
) -> None:
    behind.replace(LastCheckpoint(), b"old")
    proxy.script("PUT", Reset())

    with pytest.raises(StoreUnavailableError):
        store.replace(LastCheckpoint(), b"new", **over)

    assert behind.read(LastCheckpoint()) == b"old"


def test_a_pointer_that_another_moved_meanwhile_is_left_alone(
    store: LogStore, behind: LogStore, proxy: FaultProxy
) -> None:
    behind.replace(LastCheckpoint(), b"newer")
    proxy.script("PUT", Reset())

    assert store.replace(LastCheckpoint(), b"new", over=b"old") == Moved(found=b"newer")


def test_a_store_that_asks_for_patience_is_quoted(store: LogStore, proxy: FaultProxy) -> None:
    proxy.script("PUT", Answer(status=429, detail="Retry-After: 17"))

    with pytest.raises(StoreThrottledError) as raised:
        store.put_if_absent(V0, OURS)

    assert raised.value.retry_after_s == 17


def test_the_condition_is_on_the_wire_and_multipart_is_not(
    store: LogStore, proxy: FaultProxy, tmp_path: Path
) -> None:
    file = tmp_path / "checkpoint"
    file.write_bytes(bytes(30_000_000))

    store.put_if_absent(V0, OURS)
    store.put_file_if_absent(ClassicCheckpoint(0), file)

    puts = [request for request in proxy.seen if request.method == "PUT"]
    assert len(puts) == len(proxy.seen) == 2
    assert [request.headers.get("if-none-match") for request in puts] == ["*", "*"]


def test_encryption_by_a_key_is_asked_for(place: StorePlace, proxy: FaultProxy) -> None:
    options = replace(place.options, endpoint=proxy.endpoint, kms_key_id="arn:aws:kms:key/1")
    replace(place, options=options).open().put_if_absent(V0, OURS)

    headers = proxy.seen[0].headers
    assert headers["x-amz-server-side-encryption"] == "aws:kms"
    assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "arn:aws:kms:key/1"


def test_errors_show_no_credentials(store: LogStore, proxy: FaultProxy, place: StorePlace) -> None:
    proxy.script("PUT", Answer(status=403))
    with pytest.raises(StoreAuthError) as raised:
        store.put_if_absent(V0, OURS)

    shown = "".join(traceback.format_exception(raised.value))
    assert "Authorization" not in shown
    assert "Credential=" not in shown


@pytest.mark.xdist_group("seaweedfs")
def test_the_real_server_behind_the_proxy_takes_our_signatures(seaweedfs: S3Server) -> None:
    place = seaweedfs.place()
    with fault_proxy(seaweedfs.endpoint) as proxy:
        store = through(place, proxy)
        proxy.script("PUT", Reset(stored=True), Reset())

        assert store.put_if_absent(V0, OURS) == Identical()
        with pytest.raises(StoreUnavailableError):
            store.put_if_absent(CommitName(1), OURS)
        assert store.put_if_absent(CommitName(1), OURS) == Created()

    assert place.open().read(V0) == OURS


@pytest.mark.parametrize("error", [StoreUnavailableError, StoreThrottledError, StorageFullError])
def test_what_may_pass_is_transient(error: type[MirrorAssetsError]) -> None:
    assert issubclass(error, TransientError)


@pytest.mark.parametrize(
    "error", [StoreAuthError, ClockSkewError, StoreConfigError, UnsafeStoreError]
)
def test_what_needs_a_person_is_permanent(error: type[MirrorAssetsError]) -> None:
    assert issubclass(error, PermanentError)
