"""What every store of a log promises, on memory, local disk, moto and SeaweedFS."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirror_assets.delta.log_paths import (
    ClassicCheckpoint,
    CommitName,
    Compaction,
    LastCheckpoint,
    LogPath,
    MultiPartCheckpoint,
    SidecarName,
    StagedCommit,
    Unknown,
    V2Checkpoint,
    VersionChecksum,
)
from mirror_assets.errors import LocationError
from mirror_assets.storage.log_store import (
    Created,
    Different,
    Identical,
    LogStore,
    Moved,
    Replaced,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets_tests.store_services import StorePlace

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
KEYS = [
    CommitName(7),
    ClassicCheckpoint(7),
    V2Checkpoint(7, UUID, "json"),
    V2Checkpoint(7, UUID, "parquet"),
    SidecarName(f"{UUID}.parquet"),
    VersionChecksum(7),
    LastCheckpoint(),
    StagedCommit(7, UUID),
]
#: rewritten here from the protocol, not taken from the code
LOG_NAMES = re.compile(
    r"[0-9]{20}\.json"
    r"|[0-9]{20}\.crc"
    r"|[0-9]{20}\.checkpoint\.parquet"
    r"|[0-9]{20}\.checkpoint\.[0-9]{10}\.[0-9]{10}\.parquet"
    r"|[0-9]{20}\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)"
    r"|[0-9]{20}\.[0-9]{20}\.compacted\.json"
    r"|_last_checkpoint"
    r"|_sidecars/[A-Za-z0-9_-][A-Za-z0-9._-]*\.parquet"
    r"|_staged_commits/[0-9]{20}\.[0-9a-fA-F-]{36}\.json"
)


@pytest.fixture
def store(store_place: StorePlace) -> LogStore:
    return store_place.open()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("key", KEYS, ids=lambda key: type(key).__name__)
def test_what_is_created_is_read_back(store: LogStore, key: LogPath) -> None:
    assert store.read(key) is None
    assert store.size(key) is None
    assert store.open(key) is None

    assert store.put_if_absent(key, b"some\nbytes") == Created()

    assert store.read(key) == b"some\nbytes"
    assert store.size(key) == 10
    stream = store.open(key)
    assert stream is not None
    with stream:
        stream.seek(5)
        assert stream.read() == b"bytes"


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000])
def test_a_second_create_of_the_same_bytes_is_identical(store: LogStore, data: bytes) -> None:
    assert store.put_if_absent(CommitName(0), data) == Created()

    again = store.put_if_absent(CommitName(0), data)

    assert again == Identical()
    assert again.resolved_by == "readback"
    assert store.read(CommitName(0)) == data


@pytest.mark.parametrize("found", [b"", b"theirs"])
def test_a_create_over_other_bytes_leaves_them_alone(store: LogStore, found: bytes) -> None:
    store.put_if_absent(CommitName(0), found)

    outcome = store.put_if_absent(CommitName(0), b"ours")

    assert outcome == Different(found_size=len(found), found_sha256=sha256(found))
    assert store.read(CommitName(0)) == found


def test_a_race_of_different_contents_has_one_winner(store: LogStore) -> None:
    ways = 8
    barrier = Barrier(ways)

    def create(number: int, version: int) -> object:
        barrier.wait()
        return store.put_if_absent(CommitName(version), b"content %d" % number)

    with ThreadPoolExecutor(ways) as pool:
        for version in range(3):
            outcomes = list(pool.map(create, range(ways), [version] * ways))

            winners = [n for n, outcome in enumerate(outcomes) if outcome == Created()]
            assert len(winners) == 1
            won = b"content %d" % winners[0]
            assert store.read(CommitName(version)) == won
            lost = Different(found_size=len(won), found_sha256=sha256(won))
            assert [outcome for outcome in outcomes if outcome != Created()] == [lost] * (ways - 1)


def test_a_race_of_the_same_content_ends_well_for_all(store: LogStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(
            pool.map(lambda _: store.put_if_absent(CommitName(0), b"the commit"), range(8))
        )

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Created", *["Identical"] * 7]


def test_a_large_file_is_created_whole_and_compared(store: LogStore, tmp_path: Path) -> None:
    file, other, nothing = (tmp_path / name for name in ("one", "two", "three"))
    data = os.urandom(1024) * 9 * 1024  # above the size that gets the long deadline
    file.write_bytes(data)
    other.write_bytes(b"other")
    nothing.touch()

    assert store.put_file_if_absent(ClassicCheckpoint(3), file) == Created()
    assert store.put_file_if_absent(ClassicCheckpoint(3), file) == Identical()
    assert store.put_file_if_absent(ClassicCheckpoint(3), other) == Different(
        found_size=len(data), found_sha256=sha256(data)
    )
    assert store.put_file_if_absent(ClassicCheckpoint(4), nothing) == Created()

    assert store.size(ClassicCheckpoint(3)) == len(data)
    stream = store.open(ClassicCheckpoint(3))
    assert stream is not None
    with stream:
        stream.seek(-5, io.SEEK_END)
        assert stream.read() == data[-5:]
    assert store.read(ClassicCheckpoint(3)) == data


def test_a_log_that_is_not_there_lists_as_empty(store: LogStore) -> None:
    assert store.list().is_empty
    assert store.list(after=5).is_empty


def test_a_listing_is_sorted_and_complete(store: LogStore) -> None:
    for version in (10, 2, 9, 100):
        store.put_if_absent(CommitName(version), b"x" * version)
        store.put_if_absent(VersionChecksum(version), b"{}")
    store.put_if_absent(ClassicCheckpoint(9), b"PAR1")
    store.put_if_absent(SidecarName("s.parquet"), b"PAR1")
    store.put_if_absent(LastCheckpoint(), b"{}")

    listing = store.list()

    assert list(listing.commits) == [2, 9, 10, 100]
    assert [entry.size for entry in listing.commits.values()] == [2, 9, 10, 100]
    assert list(listing.checksums) == [2, 9, 10, 100]
    assert list(listing.checkpoints) == [9]
    assert list(listing.sidecars) == ["_sidecars/s.parquet"]
    assert listing.last_checkpoint is not None
    assert listing.unknown == ()


def test_a_listing_after_a_version_has_only_later_ones(store: LogStore) -> None:
    for version in (8, 9, 10, 100):
        store.put_if_absent(CommitName(version), b"x")
        store.put_if_absent(VersionChecksum(version), b"{}")
    store.put_if_absent(ClassicCheckpoint(9), b"PAR1")
    store.put_if_absent(SidecarName("s.parquet"), b"PAR1")
    store.put_if_absent(LastCheckpoint(), b"{}")

    listing = store.list(after=9)

    assert list(listing.commits) == [10, 100]
    assert list(listing.checksums) == [10, 100]
    assert not listing.checkpoints
    assert not listing.sidecars
    assert listing.last_checkpoint is None
    assert store.list(after=100).is_empty


def test_logs_of_neighbours_are_not_mixed_up(store_place: StorePlace) -> None:
    longer = replace(store_place, location=f"{store_place.location}b")
    store_place.open().put_if_absent(CommitName(0), b"a")
    longer.open().put_if_absent(CommitName(1), b"b")

    assert list(store_place.open().list().commits) == [0]
    assert list(longer.open().list().commits) == [1]


def test_the_read_side_sees_the_same_log(store: LogStore) -> None:
    store.put_if_absent(CommitName(0), b"x")

    assert list(store.source.list().commits) == [0]
    assert store.source.read(CommitName(0).name) == b"x"
    assert store.source.location == store.location


def test_the_pointer_is_replaced(store: LogStore) -> None:
    pointer = LastCheckpoint()

    assert store.replace(pointer, b"one") == Replaced(resolved_by="put")
    assert store.replace(pointer, b"two") == Replaced(resolved_by="put")

    assert store.read(pointer) == b"two"


def test_nothing_but_the_pointer_is_replaced(store: LogStore) -> None:
    store.put_if_absent(CommitName(0), b"x")

    with pytest.raises(LocationError):
        store.replace(CommitName(0), b"y")

    assert store.read(CommitName(0)) == b"x"


def test_the_pointer_is_replaced_only_over_what_was_seen(store: LogStore) -> None:
    pointer = LastCheckpoint()

    assert store.replace(pointer, b"one", over=b"zero") == Moved(found=None)
    assert store.read(pointer) is None
    assert store.replace(pointer, b"one", over=None) == Replaced(resolved_by="put")
    assert store.replace(pointer, b"two", over=b"one") == Replaced(resolved_by="put")
    assert store.replace(pointer, b"late", over=b"one") == Moved(found=b"two")
    assert store.replace(pointer, b"late", over=None) == Moved(found=b"two")

    assert store.read(pointer) == b"two"


def test_replacing_the_seen_pointer_is_a_race_with_one_winner(store: LogStore) -> None:
    store.replace(LastCheckpoint(), b"seen")
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(
            pool.map(
                lambda n: store.replace(LastCheckpoint(), b"new %d" % n, over=b"seen"), range(6)
            )
        )

    winners = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Replaced)]
    assert len(winners) == 1
    assert store.read(LastCheckpoint()) == b"new %d" % winners[0]


def test_a_deleted_file_is_gone_and_may_be_deleted_again(store: LogStore) -> None:
    store.put_if_absent(CommitName(0), b"x")
    store.put_if_absent(CommitName(1), b"y")

    store.delete(CommitName(0))
    store.delete(CommitName(0))

    assert store.read(CommitName(0)) is None
    assert list(store.list().commits) == [1]
    assert store.put_if_absent(CommitName(0), b"z") == Created()


@pytest.mark.parametrize(
    "key",
    [
        Unknown("notes.txt"),
        Unknown("../escape.json"),
        CommitName(-1),
        CommitName(2**63),
        SidecarName("../../escape.parquet"),
        SidecarName("a b.parquet"),
        SidecarName("_x/y.parquet"),
        SidecarName("a\n.parquet"),
        Compaction(5, 4),
        MultiPartCheckpoint(0, 3, 2),
        V2Checkpoint(0, "no-uuid", "json"),
        StagedCommit(0, "../x"),
    ],
    ids=str,
)
def test_only_names_of_the_protocol_are_written(
    store: LogStore, key: LogPath, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    for attempt in (
        lambda: store.put_if_absent(key, b"x"),
        lambda: store.put_file_if_absent(key, file),
        lambda: store.replace(key, b"x"),
        lambda: store.delete(key),
        lambda: store.set_mtime(key, 1),
    ):
        with pytest.raises(LocationError):
            attempt()
    assert store.list().is_empty


names = st.text(alphabet="az09_-. /\\%\n\x00é", max_size=40)
versions = st.integers(-5, 2**64)
keys = st.one_of(
    versions.map(CommitName),
    versions.map(ClassicCheckpoint),
    versions.map(VersionChecksum),
    names.map(SidecarName),
    names.map(Unknown),
    st.builds(V2Checkpoint, versions, names | st.just(UUID), st.sampled_from(["json", "parquet"])),
    st.builds(StagedCommit, versions, names | st.just(UUID)),
    st.builds(Compaction, versions, versions),
    st.builds(MultiPartCheckpoint, versions, versions, versions),
)


@pytest.mark.parametrize("store_place", ["memory", "local"], indirect=True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=st.lists(keys, max_size=10))
def test_every_key_written_is_a_name_of_the_protocol(store: LogStore, keys: list[LogPath]) -> None:
    for key in keys:
        try:
            store.put_if_absent(key, b"x")
        except LocationError:
            assert store.list().unknown == ()

    listing = store.list()
    assert listing.unknown == ()
    written = {entry.name for entry in listing.commits.values()} | set(listing.sidecars)
    assert all(LOG_NAMES.fullmatch(name) for name in written)


@pytest.mark.parametrize("store_place", ["memory", "local"], indirect=True)
def test_foreign_files_can_be_read_but_not_beyond_the_log(store: LogStore) -> None:
    store.put_if_absent(CommitName(0), b"x")

    assert store.read(Unknown("notes.txt")) is None
    for name in ("../x", "/etc/passwd", "a//b", "", "a\\b", "a\0b"):
        with pytest.raises(LocationError):
            store.read(Unknown(name))


@pytest.mark.slow
@pytest.mark.parametrize("store_place", ["moto", "local"], indirect=True)
def test_a_listing_of_more_than_a_page_is_complete(store: LogStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda v: store.put_if_absent(CommitName(v), b"x"), range(1050)))

    assert list(store.list().commits) == list(range(1050))
    assert list(store.list(after=20).commits) == list(range(21, 1050))


def test_a_store_shows_no_credentials_and_is_not_pickled(store_place: StorePlace) -> None:
    store = store_place.open()

    assert not hasattr(store, "config")
    assert not hasattr(store, "__dict__")
    for _, secret in store_place.options.credentials:
        assert secret.reveal() not in f"{store!r} {store_place.options!r} {store_place!r}"
    if store_place.options.credentials:
        for holder in (store, store.source, store_place.options):
            with pytest.raises(TypeError):
                pickle.dumps(holder)
