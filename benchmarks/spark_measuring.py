"""What Spark's work costs: CPU of this process and all below it, the JVM and its workers too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measuring import Sample, calmest
from benchmarks.reporting import Result


def turns(rounds: int, *contenders: Callable[[int], None]) -> list[Sample]:
    """The first round is for warming up."""
    taken: list[list[Sample]] = [[] for _ in contenders]
    for number in range(rounds + 1):
        for samples, contender in zip(taken, contenders, strict=True):
            samples.append(measured(lambda call=contender, at=number: call(at)))
    return [calmest(samples[1:]) for samples in taken]


def measured(call: Callable[[], object]) -> Sample:
    cpu, wall = _tree_cpu(os.getpid()), time.perf_counter()
    call()
    return Sample(wall=time.perf_counter() - wall, cpu=_tree_cpu(os.getpid()) - cpu)


def _tree_cpu(process: int) -> float:
    """CPU seconds so far of a process, all below it, and those of them that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    below = [int(child) for thread in threads for child in _children(thread)]
    own = sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(_tree_cpu(child) for child in below)


def _children(thread: Path) -> list[str]:
    """A child belongs to the thread that forked it: the JVM's Python workers to any."""
    try:
        return (thread / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def ratio(
    goal: str, what: str, ours: float, peer: tuple[str, float], bound: float | None
) -> Result:
    against, theirs = peer
    return Result(
        goal=goal, what=what, unit="s", ours=ours, against=against, theirs=theirs, bound=bound
    )
