"""Measuring: wall and CPU time of calls, of a database server, and peak memory of a child.

Wall times come as the median of calls, CPU as user + system time per call. Contenders are measured
in turns, because the machine's mood changes from minute to minute, and the calmest round of each
counts. Linux only: it reads /proc.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

import psycopg

_CHILD: Final = "benchmarks.measuring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What some calls took, in seconds per call."""

    wall: float
    cpu: float
    server_cpu: float = 0.0

    @property
    def total_cpu(self) -> float:
        """CPU of the client and, where it was watched, of the server."""
        return self.cpu + self.server_cpu


@dataclass(frozen=True, slots=True)
class PostgresCpu:
    """The CPU time of a local PostgreSQL server with all its processes."""

    postmaster: int

    @classmethod
    def of(cls, dsn: str) -> Self:
        """Find the server that answers at the address."""
        with psycopg.connect(dsn) as connection:
            return cls(_parent(connection.info.backend_pid))

    def seconds(self) -> float:
        """CPU time so far of the processes that run now."""
        return sum(map(_run_time, [self.postmaster, *_children(self.postmaster)]))

    def seconds_of_all(self) -> float:
        """CPU time so far, in clock ticks, of those too that have ended."""
        ended = sum(_ticks(self.postmaster)[2:4]) / os.sysconf("SC_CLK_TCK")
        return self.seconds() + ended


def measure(
    call: Callable[[Any], object], arguments: Sequence[Any], server: PostgresCpu | None = None
) -> Sample:
    """Call with each argument in turn: the median wall time, the mean CPU time."""
    clock, walls = time.perf_counter, []
    server_before = server.seconds() if server else 0.0
    cpu_before = time.process_time()
    for argument in arguments:
        before = clock()
        call(argument)
        walls.append(clock() - before)
    cpu = time.process_time() - cpu_before
    server_cpu = server.seconds() - server_before if server else 0.0
    calls = len(walls)
    return Sample(wall=median(walls), cpu=cpu / calls, server_cpu=server_cpu / calls)


def in_turns(rounds: int, *contenders: Callable[[], Sample]) -> list[Sample]:
    """Measure A B C A B C ...; the calmest round of each contender."""
    taken: list[list[Sample]] = [[] for _ in contenders]
    for _ in range(rounds):
        for samples, contender in zip(taken, contenders, strict=True):
            samples.append(contender())
    return [calmest(samples) for samples in taken]


def calmest(samples: Sequence[Sample]) -> Sample:
    """The least of several samples, each quantity by itself: noise only ever adds."""
    return Sample(
        wall=min(s.wall for s in samples),
        cpu=min(s.cpu for s in samples),
        server_cpu=min(s.server_cpu for s in samples),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSample:
    """What one call took in a process of its own; imports are not counted in the times."""

    wall: float
    cpu: float
    peak_mb: float
    #: what the call returned
    value: Any


def in_child(call: Callable[..., Any], **arguments: str | float) -> ChildSample:
    """Run a module's function in a new interpreter; arguments and result must be JSON."""
    order = [call.__module__, call.__name__, json.dumps(arguments)]
    done = subprocess.run(
        [sys.executable, "-m", _CHILD, *order], stdout=subprocess.PIPE, check=True, text=True
    )
    return ChildSample(**json.loads(done.stdout.splitlines()[-1]))


def calmest_child(samples: Sequence[ChildSample]) -> ChildSample:
    """The least times of several runs, but the highest peak."""
    return ChildSample(
        wall=min(s.wall for s in samples),
        cpu=min(s.cpu for s in samples),
        peak_mb=max(s.peak_mb for s in samples),
        value=samples[-1].value,
    )


def _main(module: str, name: str, arguments: str) -> None:
    call = getattr(importlib.import_module(module), name)
    values: Mapping[str, Any] = json.loads(arguments)
    wall, cpu = time.perf_counter(), time.process_time()
    value = call(**values)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"wall": wall, "cpu": cpu, "peak_mb": _peak_mb(), "value": value}))


def _peak_mb() -> float:
    """From /proc, for `ru_maxrss` also remembers the parent's memory from before exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError("VmHWM")


def _parent(process: int) -> int:
    after_the_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    return int(after_the_name.split()[1])


def cpu_of(process: int) -> float:
    """CPU seconds so far of a process, in clock ticks."""
    return sum(_ticks(process)[:2]) / os.sysconf("SC_CLK_TCK")


def _ticks(process: int) -> list[int]:
    """User and system time, and both of the children that were waited for."""
    after_the_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    return [int(ticks) for ticks in after_the_name.split()[11:15]]


def _run_time(process: int) -> float:
    """Finer than the clock ticks of /proc/<pid>/stat; nothing for one that has ended since."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def _children(process: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{process}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


if __name__ == "__main__":
    _main(*sys.argv[1:])
