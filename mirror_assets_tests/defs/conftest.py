from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from mirror_assets.settings import Settings, variable
from mirror_assets_tests.builders import a_metastore
from mirror_assets_tests.defs.platform import Platform

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def settings_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come from the test alone: its metastore, and nothing of the machine."""
    for key in (*Settings.model_fields, "config"):
        monkeypatch.delenv(variable(key), raising=False)
    (tmp_path / "dagster_home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster_home"))
    monkeypatch.setenv("MIRROR_METASTORE_URL", f"sqlite:///{tmp_path / 'metastore.db'}")
    monkeypatch.setenv("MIRROR_STORE_DURABLE", "false")


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with (
        a_metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as metastore,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        yield Platform(metastore, tmp_path / "lake", instance)


class Posted(list[dict[str, Any]]):
    """What was posted and taken."""

    #: from which number on nothing is taken
    refuse_from: int | None = None

    def takes(self) -> bool:
        return self.refuse_from is None or len(self) < self.refuse_from


@pytest.fixture
def webserver() -> Iterator[tuple[str, Posted]]:
    """An address that takes what is posted, and remembers it."""
    posted = Posted()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not posted.takes():
                self.send_error(503)
                return
            posted.append(body)
            self.send_response(200)
            self.end_headers()
            done = {"data": {"reloadRepositoryLocation": {"__typename": "WorkspaceLocationEntry"}}}
            self.wfile.write(json.dumps(done).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", posted
    server.shutdown()
    thread.join()
    server.server_close()
