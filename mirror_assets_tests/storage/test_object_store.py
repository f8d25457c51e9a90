"""The object store: listings that lie, and uploads that do not grow the process."""

from __future__ import annotations

import datetime as dt
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest

from mirror_assets.delta.log_paths import ClassicCheckpoint, CommitName
from mirror_assets.storage.log_store import Created
from mirror_assets.storage.options import Secret, StoreOptions
from mirror_assets.storage.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

STATUS = Path("/proc/self/status")
MEBIBYTE = 1024 * 1024


def test_a_listing_that_repeats_and_is_out_of_order_is_put_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store("memory://listings/t", allowed_roots=())
    now = dt.datetime.now(dt.UTC)

    def lying(_: object, prefix: str, **__: object) -> list[list[dict[str, object]]]:
        pages = [[3, 1], [1, 2], [3, 0]]
        return [
            [{"path": f"{prefix}{CommitName(v)}", "size": v, "last_modified": now} for v in page]
            for page in pages
        ]

    monkeypatch.setattr(obstore, "list", lying)

    assert list(store.list().commits) == [0, 1, 2, 3]
    assert list(store.list(after=1).commits) == [2, 3]  # though it starts where it likes


def test_a_file_that_a_listing_misses_is_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://lagging/t", allowed_roots=())
    store.put_if_absent(CommitName(0), b"x")
    monkeypatch.setattr(obstore, "list", lambda *_, **__: [])

    assert store.list().is_empty
    assert store.size(CommitName(0)) == 1
    assert store.read(CommitName(0)) == b"x"


@pytest.fixture
def sink() -> Iterator[str]:
    """A server that takes every file and keeps none."""

    class Sink(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            left = int(self.headers["content-length"])
            while left:
                left -= len(self.rfile.read(min(left, MEBIBYTE)))
            self.send_response(200)
            self.send_header("etag", '"x"')
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def own_memory() -> int:
    """Bytes of the process itself, without mapped files, which the system may drop."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")
def test_an_upload_of_a_large_file_does_not_grow_the_process(sink: str, tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    with file.open("wb") as stream:
        stream.truncate(256 * MEBIBYTE)
    credentials = (("access_key_id", Secret("a")), ("secret_access_key", Secret("b")))
    options = StoreOptions(endpoint=sink, region="us-east-1", credentials=credentials)
    store = open_store("s3://bucket/t", options, allowed_roots=())
    store.put_if_absent(CommitName(0), b"the connection is there")
    before, peak, done = own_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert store.put_file_if_absent(ClassicCheckpoint(0), file) == Created()
    finally:
        done.set()
        watcher.join()

    assert peak - before < 32 * MEBIBYTE
