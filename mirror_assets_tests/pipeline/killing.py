"""Drivers of Spark that are killed with all they started, and what they leave.

By hand, at random moments, with the seed it prints:

    python -m mirror_assets_tests.pipeline.killing DIRECTORY [BATCHES KILLS SEED METASTORE_URL]
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_assets.pipeline.session import SparkOptions, open_session
from mirror_assets.pipeline.vacuum import vacuum
from mirror_assets_tests.pipeline.lakehouse import TABLE, a_lakehouse, by_all
from mirror_assets_tests.pipeline.mortal_driver import QUERY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_assets_tests.pipeline.lakehouse import Lakehouse

PATIENCE_SECONDS = 300
POINTS_OF_A_BATCH = 4
ROWS_OF_A_BATCH = 10


@dataclass
class Driver:
    """A `mortal_driver` and the pipe by which it says where it is."""

    process: subprocess.Popen
    pipe: int
    errors: Path
    _lines: list[str] = field(default_factory=list)
    _rest: str = ""

    def wait_for(self, line: str) -> None:
        """Read on until it says so; fail with its errors if it never does."""
        while self.next_line() != line:
            pass

    def next_line(self) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._lines:
            if select.select([self.pipe], [], [], 0.5)[0]:
                *self._lines, self._rest = (self._rest + os.read(self.pipe, 4096).decode()).split(
                    "\n"
                )
            elif self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(self.errors.read_text()[-4000:])
        return self._lines.pop(0)

    def kill(self) -> None:
        """Python, the JVM, and what they started, without a moment to say good-bye."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def a_driver(kind: str, url: str, root: Path, hold: str = "") -> Iterator[Driver]:
    pipe = root / "pipe"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    # open for both, so that neither opening nor reading waits for the other side
    reading = os.open(pipe, os.O_RDWR)
    words = [kind, url, str(root), str(pipe), *([hold] if hold else [])]
    errors = root / "errors.log"
    with errors.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.mortal_driver", *words],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            process_group=0,
        )
    driver = Driver(process, reading, errors)
    try:
        yield driver
    finally:
        driver.kill()
        os.close(reading)
        if process.stdin is not None:
            process.stdin.close()


def kill_at(point: str, kind: str, url: str, root: Path) -> None:
    """Let a driver come to the point, and kill it there."""
    with a_driver(kind, url, root, hold=point) as driver:
        driver.wait_for(point)
        driver.kill()


def a_source(root: Path, batches: int) -> None:
    """A file for each batch of a `stream`."""
    source = root / "source"
    source.mkdir()
    for number in range(batches):
        first = number * ROWS_OF_A_BATCH
        rows = pa.table({"id": pa.array(range(first, first + ROWS_OF_A_BATCH), pa.int64())})
        pq.write_table(rows, source / f"{number:04}.parquet")


def known_orphans(lakehouse: Lakehouse) -> set[str]:
    """What a vacuum would take if nobody were at work."""
    plan = vacuum(TABLE, access=lakehouse.access, retain_ms=0, allow_short=True)
    return {file.path for file in plan.delete}


def main(directory: str, batches: int, kills: int, seed: int, url: str) -> None:
    """Kill a stream at random moments; show what three readers find."""
    root, chance = Path(directory), random.Random(seed)
    root.mkdir(parents=True)
    # a query that is started again may put two files into a batch, where it was killed between
    # its source's log and its own
    a_source(root, batches + kills)
    spark_options = SparkOptions(master="local[2]", delta=True)
    numbers = sorted(chance.sample(range(0, batches, 2), kills))
    killed = []
    with a_lakehouse(None, root, url or f"sqlite:///{root / 'metastore.db'}") as lakehouse:
        url = lakehouse.access.metastore_url()
        for number in numbers:
            with a_driver("stream", url, root) as driver:
                driver.wait_for(f"{number}:begin")
                line = f"{number}:begin"
                for _ in range(chance.randrange(POINTS_OF_A_BATCH)):
                    line = driver.next_line()
                delay = chance.random() * 0.4
                time.sleep(delay)
                driver.kill()
            killed.append(f"{line} + {delay:.2f} s")
            sys.stderr.write(f"killed at {killed[-1]}\n")
        with a_driver("stream", url, root) as driver:
            driver.wait_for("finished")
            driver.process.wait(PATIENCE_SECONDS)
        lakehouse.mirror()
        lakehouse.spark = open_session(spark_options)
        seen = by_all(lakehouse.spark, lakehouse.place())
        expected = [(number,) for number in range((batches + kills) * ROWS_OF_A_BATCH)]
        document = {
            "seed": seed,
            "killed": killed,
            "rows": [len(rows) for rows in seen],
            "exactly_once": [sorted(rows) == expected for rows in seen],
            "commits": lakehouse.reader.table(TABLE).head_version,
            "batches": lakehouse.reader.txns(TABLE)[QUERY].version + 1,
            "orphans": sorted(known_orphans(lakehouse)),
            "unknown_orphans": sorted(lakehouse.orphans() - known_orphans(lakehouse)),
        }
        lakehouse.spark.stop()
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    given = [*sys.argv[1:], *("200", "10", str(time.time_ns()), "")[len(sys.argv) - 2 :]]
    main(given[0], int(given[1]), int(given[2]), int(given[3]), given[4])
