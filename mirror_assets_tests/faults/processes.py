"""`mirror` as processes, a writer beside them, and patience."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from mirror_assets.metastore.log_writer import SqlTxnLogWriter
from mirror_assets_tests.builders import add

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mirror_assets_tests.mirror.mirroring import World
    from mirror_assets_tests.store_services import S3Server


@dataclass
class Mirrors:
    """`mirror` processes on one metastore; all end with the block that made them."""

    url: str
    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    running: list[subprocess.Popen] = field(default_factory=list)

    def start(self, *words: str) -> subprocess.Popen:
        environment = {
            **os.environ,
            "MIRROR_METASTORE_URL": self.url,
            "MIRROR_STORE_DURABLE": "false",
            "MIRROR_ALLOWED_ROOTS": str(self.home / "lake"),
            "MIRROR_LOG_LEVEL": "info",
            **self.environment,
        }
        with (self.home / f"mirror-{len(self.running)}.log").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "mirror_assets_tests.cli.run", "mirror", *words],
                env=environment,
                cwd=self.home,
                stdout=output,
                stderr=output,
            )
        self.running.append(process)
        return process


@contextmanager
def mirrors(
    url: str, home: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Mirrors]:
    started = Mirrors(url, home, environment or {})
    try:
        yield started
    finally:
        for process in started.running:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextmanager
def a_writer(world: World, names: list[str], pause_s: float) -> Iterator[list[Any]]:
    """Commits to the tables in turn; the outcomes, or what went wrong."""
    outcomes: list[Any] = []
    stop = Event()

    def write() -> None:
        writer = SqlTxnLogWriter(world.metastore)
        number = 0
        while not stop.wait(pause_s):
            number += 1
            try:
                outcomes.append(writer.commit(names[number % len(names)], [add(f"w-{number}")]))
            except Exception as error:  # noqa: BLE001 - shown by the assertion
                outcomes.append(error)

    thread = Thread(target=write)
    thread.start()
    try:
        yield outcomes
    finally:
        stop.set()
        thread.join()


def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def is_caught_up(world: World, names: list[str]) -> bool:
    return not any(world.state(name).lag_versions for name in names)


def s3_environment(server: S3Server, root: str, endpoint: str) -> dict[str, str]:
    """How a process is told to mirror below the root, through the endpoint."""
    return {
        "MIRROR_ALLOWED_ROOTS": root,
        "MIRROR_STORE_ENDPOINT": endpoint,
        "MIRROR_STORE_REGION": "us-east-1",
        "MIRROR_STORE_CREDENTIALS": "access_key_id=TEST_KEY,secret_access_key=TEST_SECRET",
        "TEST_KEY": server.access_key,
        "TEST_SECRET": server.secret_key,
    }
