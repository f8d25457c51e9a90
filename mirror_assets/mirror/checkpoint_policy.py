"""When a checkpoint is due. Pure: facts in, a reason out.

A reader pays for every commit since the newest checkpoint; a checkpoint costs what the table
weighs. So small tables are checkpointed every few commits, large ones so seldom that the cost per
commit stays bounded, and none before it has rested for a multiple of what the last one took.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """How often; a table's own `delta.checkpointInterval` stands above `commits`."""

    commits: int = 10
    #: live files that raise the interval by one commit each, up to the most
    files_per_commit: int = 10_000
    most_commits: int = 1_000
    #: JSON that a reader must parse since; never less than a checkpoint would itself weigh
    json_bytes: int = 16 * 1024 * 1024
    bytes_per_file: int = 100
    age_ms: int = 24 * 3_600_000
    #: what fetching and decoding the commits since may take a reader, as measured; never less
    #: than the checkpoint itself takes it
    reader_ms: float = 1_000
    reader_ms_per_file: float = 0.01
    #: a build of t seconds is followed by a rest of at least this many times t
    rest: float = 10.0

    def interval(self, *, num_files: int, own: int | None) -> int:
        """After how many commits a checkpoint is due."""
        if own is not None:
            return own
        return min(self.most_commits, self.commits + num_files // self.files_per_commit)

    def rest_ms(self, seconds: float) -> int:
        """How long to leave a table alone after a build."""
        return int(seconds * self.rest * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """A table since its newest checkpoint."""

    commits: int
    json_bytes: int
    #: of the oldest commit since
    age_ms: int
    num_files: int
    interval: int | None
    #: a log without its first commits cannot be read before it has a checkpoint
    lacks_beginning: bool = False
    #: until a build, a wait or a rest is over
    wait_ms: int
    #: what one commit takes a reader, as measured
    commit_ms: float = 0


def due_by(facts: CheckpointFacts, policy: CheckpointPolicy) -> str | None:
    """Why a checkpoint is due; None while it is not."""
    if facts.lacks_beginning:
        reason = "beginning"
    elif facts.commits < 1:
        reason = None
    elif facts.commits >= policy.interval(num_files=facts.num_files, own=facts.interval):
        reason = "commits"
    elif facts.json_bytes >= max(policy.json_bytes, facts.num_files * policy.bytes_per_file):
        reason = "bytes"
    elif facts.age_ms >= policy.age_ms:
        reason = "age"
    elif facts.commits * facts.commit_ms >= max(
        policy.reader_ms, facts.num_files * policy.reader_ms_per_file
    ):
        reason = "reader"
    else:
        reason = None
    return None if facts.wait_ms > 0 else reason
