"""The local store: whole files or none, durable, and never out of its root."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror_assets.delta.locations import normalise_location
from mirror_assets.delta.log_paths import (
    ClassicCheckpoint,
    CommitName,
    LastCheckpoint,
    SidecarName,
)
from mirror_assets.errors import (
    LocationError,
    StorageFullError,
    StoreConfigError,
    StoreUnavailableError,
    UnsafeStoreError,
)
from mirror_assets.storage.local_store import LocalLogStore
from mirror_assets.storage.log_store import Created, Identical, LogStore
from mirror_assets.storage.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = re.compile(r"[0-9]{20}\.json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    return folder


@pytest.fixture
def store(root: Path) -> LogStore:
    return open_store(str(root / "sales" / "orders"), allowed_roots=[str(root)])


@pytest.fixture
def log(root: Path) -> Path:
    return root / "sales" / "orders" / "_delta_log"


def names(log: Path) -> list[str]:
    return sorted(path.name for path in log.iterdir())


def test_directories_are_made_and_nothing_but_the_file_is_left(store: LogStore, log: Path) -> None:
    store.put_if_absent(CommitName(0), b"x")
    store.put_if_absent(CommitName(0), b"y")
    store.replace(LastCheckpoint(), b"{}")

    assert names(log) == [CommitName(0).name, "_last_checkpoint"]


def test_a_file_is_visible_with_its_commit_s_time(store: LogStore, log: Path) -> None:
    store.put_if_absent(CommitName(0), b"x", mtime_ms=1_600_000_000_123)
    store.put_if_absent(CommitName(1), b"x")
    store.set_mtime(CommitName(1), 1_600_000_001_456)
    store.set_mtime(CommitName(2), 1)  # is not there

    found = store.list().commits
    assert [entry.mtime_ms for entry in found.values()] == [1_600_000_000_123, 1_600_000_001_456]


def test_every_file_and_directory_is_synced_before_success_is_reported(
    store: LogStore, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    store.put_if_absent(CommitName(0), b"x")

    assert synced[:3] == ["lake", "sales", "orders"]  # the parents of what was made
    assert re.fullmatch(r"\.[0-9a-f]{32}\.tmp", synced[3])
    assert synced[4:] == ["_delta_log"]

    synced.clear()
    assert store.put_if_absent(CommitName(0), b"x") == Identical()
    assert synced == [CommitName(0).name, "_delta_log"]  # who linked it may have died before

    synced.clear()
    store.replace(LastCheckpoint(), b"x")
    assert synced[1:] == ["_delta_log"]


def test_a_store_that_need_not_be_durable_syncs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", pytest.fail)
    store = LocalLogStore(normalise_location(str(tmp_path)), durable=False)

    assert store.put_if_absent(CommitName(0), b"x") == Created()


@pytest.mark.parametrize("linked", ["sales", "sales/orders", "sales/orders/_delta_log"])
def test_a_link_out_of_the_root_is_refused(
    store: LogStore, root: Path, tmp_path: Path, linked: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = root / linked
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)

    for attempt in (
        lambda: store.put_if_absent(CommitName(0), b"x"),
        lambda: store.replace(LastCheckpoint(), b"x"),
        lambda: store.read(CommitName(0)),
        store.list,
        lambda: store.delete(CommitName(0)),
        lambda: store.remove_orphans(0),
        lambda: store.source,
    ):
        with pytest.raises(LocationError, match="link"):
            attempt()
    assert list(outside.rglob("*")) == []


def test_a_link_out_of_the_table_is_refused_without_any_root(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "t" / "_delta_log").symlink_to(tmp_path / "outside")

    with pytest.raises(LocationError, match="link"):
        open_store(str(tmp_path / "t"), allowed_roots=()).put_if_absent(CommitName(0), b"x")


def test_links_to_and_inside_of_the_root_are_followed(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "lake").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "t").symlink_to(tmp_path / "disk" / "real")
    store = open_store(str(tmp_path / "lake" / "t"), allowed_roots=[str(tmp_path / "lake")])

    assert store.put_if_absent(CommitName(0), b"x") == Created()
    assert (tmp_path / "disk" / "real" / "_delta_log" / CommitName(0).name).exists()


def test_a_link_in_the_place_of_the_sidecars_is_refused(
    store: LogStore, log: Path, tmp_path: Path
) -> None:
    store.put_if_absent(CommitName(0), b"x")
    (log / "_sidecars").symlink_to(tmp_path)

    with pytest.raises(LocationError):
        store.put_if_absent(SidecarName("a.parquet"), b"x")
    assert not (tmp_path / "a.parquet").exists()


def test_a_link_in_the_place_of_a_file_is_neither_followed_nor_overwritten(
    store: LogStore, log: Path, tmp_path: Path
) -> None:
    store.put_if_absent(CommitName(0), b"x")
    target = tmp_path / "secret"
    target.write_bytes(b"ours")
    (log / CommitName(1).name).symlink_to(target)

    with pytest.raises(LocationError):
        store.put_if_absent(CommitName(1), b"ours")
    with pytest.raises(LocationError):
        store.read(CommitName(1))
    assert target.read_bytes() == b"ours"


def test_a_link_planted_after_the_check_is_not_followed(
    store: LogStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "sales").mkdir()
    real = os.open

    def plant_then_open(path: object, *rest: object, **more: object) -> int:
        if path == "orders" and not (root / "sales" / "orders").is_symlink():
            (root / "sales" / "orders").symlink_to(outside)
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", plant_then_open)
    with pytest.raises(LocationError, match="link"):
        store.put_if_absent(CommitName(0), b"x")
    assert list(outside.rglob("*")) == []


def test_a_root_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """It may be a file system that is not mounted."""
    lake = tmp_path / "lake"
    store = open_store(str(lake / "t"), allowed_roots=[str(lake)])

    with pytest.raises(StoreConfigError, match="does not exist"):
        store.put_if_absent(CommitName(0), b"x")
    assert not lake.exists()


def test_a_file_in_the_way_is_a_wrong_setting(store: LogStore, root: Path) -> None:
    (root / "sales").touch()

    with pytest.raises(StoreConfigError):
        store.put_if_absent(CommitName(0), b"x")


def test_a_pipe_or_directory_of_a_commit_s_name_is_refused_at_once(
    store: LogStore, log: Path
) -> None:
    store.put_if_absent(CommitName(0), b"x")
    os.mkfifo(log / CommitName(1).name)

    (log / CommitName(2).name).mkdir()

    for version in (1, 2):
        with pytest.raises(StoreConfigError, match="no regular file"):
            store.put_if_absent(CommitName(version), b"x")
        with pytest.raises(StoreConfigError, match="no regular file"):
            store.read(CommitName(version))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if done.returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_said_so_and_leaves_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk"):
        store = open_store(str(tmp_path / "disk" / "t"), allowed_roots=[str(tmp_path / "disk")])
        big = tmp_path / "big"
        big.write_bytes(bytes(200_000))
        store.put_if_absent(CommitName(0), b"x")

        with pytest.raises(StorageFullError):
            store.put_if_absent(CommitName(1), bytes(200_000))
        with pytest.raises(StorageFullError):
            store.put_file_if_absent(ClassicCheckpoint(0), big)
        with pytest.raises(StorageFullError):
            store.replace(LastCheckpoint(), bytes(200_000))

        assert names(tmp_path / "disk" / "t" / "_delta_log") == [CommitName(0).name]
        assert store.put_if_absent(CommitName(1), b"small") == Created()


def test_a_quota_is_said_so_and_leaves_nothing(store: LogStore, log: Path) -> None:
    store.put_if_absent(CommitName(0), b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StorageFullError):
            store.put_if_absent(CommitName(1), bytes(200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert names(log) == [CommitName(0).name]


def test_a_file_system_without_links_is_unsafe(
    store: LogStore, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UnsafeStoreError, match="hard links"):
        store.put_if_absent(CommitName(0), b"x")
    assert names(log) == []


def test_an_input_output_error_is_transient(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent(CommitName(0), b"x")


def test_orphans_are_removed_when_they_are_old_and_nothing_else(store: LogStore, log: Path) -> None:
    store.put_if_absent(CommitName(0), b"x")
    store.put_if_absent(SidecarName("a.parquet"), b"x")
    orphans = [
        f".{'0' * 32}.tmp",
        f"{CommitName(1)}#1",
        f"{ClassicCheckpoint(1)}#12",
        "_last_checkpoint#1",
        f"_sidecars/.{'f' * 32}.tmp",
        "_sidecars/b.parquet#1",
    ]
    others = ["notes#1", ".hidden.tmp", "x.tmp", "_sidecars/c.parquet", f".{CommitName(0)}.crc"]
    for name in orphans + others:
        (log / name).write_bytes(b"")
    os.utime(log / orphans[0], (0, 0))  # its age is that of its last change, not what it says

    assert store.remove_orphans(3600) == ()
    assert store.remove_orphans(-1) == tuple(sorted(orphans))

    left = {str(path.relative_to(log)) for path in log.rglob("*") if path.is_file()}
    assert left == {CommitName(0).name, "_sidecars/a.parquet", *others}
    assert store.remove_orphans(-1) == ()


def test_a_writer_whose_temporary_file_the_janitor_took_tries_again(
    store: LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link(*arguments: object, **more: object) -> None:
        monkeypatch.setattr(os, "link", real)
        assert store.remove_orphans(-1)
        real(*arguments, **more)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreUnavailableError):
        store.put_if_absent(CommitName(0), b"x")

    assert store.put_if_absent(CommitName(0), b"x") == Created()


WRITER = """
    import sys
    from pathlib import Path
    from mirror_assets.delta.log_paths import CommitName, LastCheckpoint
    from mirror_assets.storage.stores import open_store
    store = open_store(sys.argv[1], allowed_roots=())
    print("ready", flush=True)
    version = 0
    while True:
        store.put_if_absent(CommitName(version), b"%020d" % version * 5000)
        store.replace(LastCheckpoint(), b"%020d" % version * 100)
        version += 1
"""


def test_a_killed_writer_leaves_no_torn_file(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    for number in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(0.05 + number * 0.037)
            writer.send_signal(signal.SIGKILL)

    commits = [path for path in log.iterdir() if COMMIT.fullmatch(path.name)]
    assert commits
    for path in commits:
        assert path.read_bytes() == path.stem.encode() * 5000
    pointer = (log / "_last_checkpoint").read_bytes()
    assert pointer == pointer[:20] * 100
    store = open_store(str(tmp_path), allowed_roots=())
    store.remove_orphans(-1)
    assert store.list().unknown == ()
