"""A commit as the bytes of its file (goal 11)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.measuring import in_turns, measure
from benchmarks.reporting import Result
from benchmarks.samples import adds
from mirror_assets.delta.commit_file import encode


def run(bench: Bench) -> Iterator[Result]:
    """The floor has its dictionaries ready; ours encodes actions."""
    actions = adds(bench.of(10_000, 500))
    data = encode(actions)
    lines = [json.loads(line) for line in data.splitlines()]

    def plain(_: object) -> None:
        "\n".join(json.dumps(line, separators=(",", ":")) for line in lines).encode()

    repeats = range(bench.of(5, 1))
    ours, theirs = in_turns(
        bench.rounds,
        lambda: measure(lambda _: encode(actions), repeats),
        lambda: measure(plain, repeats),
    )
    megabytes = len(data) / 1e6
    yield Result(
        goal="11",
        what=f"commit of {len(actions):,} adds encoded",
        unit="MB/s",
        ours=megabytes / ours.cpu,
        against="stdlib json",
        theirs=megabytes / theirs.cpu,
        bound=4,
        at_least=True,
    )
