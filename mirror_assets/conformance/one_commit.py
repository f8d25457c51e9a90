"""One commit by the rules, in the light of a state that somebody else knows.

The validator replays a log to know the state before each commit. Who has that state in SQL need
not: the rules ask only for the settings in force and for the files that the commit names.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirror_assets.conformance import (  # noqa: F401 - they register their checks
    action_rules,
    commit_rules,
)
from mirror_assets.conformance.checks import COMMIT
from mirror_assets.conformance.commit_lines import CommitLines, read_lines
from mirror_assets.conformance.history import History
from mirror_assets.conformance.history_rules import spellings
from mirror_assets.conformance.rulebook import Profile
from mirror_assets.conformance.vector_rules import vectors_take_away_what_they_say
from mirror_assets.conformance.views import Commit, Log
from mirror_assets.conformance.weighing import Weighing
from mirror_assets.delta.actions import AddFile, RemoveFile
from mirror_assets.delta.log_paths import CommitName, LogEntry, LogListing
from mirror_assets.findings import Finding
from mirror_assets.storage.table_files import FileReader


@dataclass(frozen=True, slots=True)
class CommitBytes:
    """A commit file as it lies in the log, understood as far as it can be."""

    version: int
    data: bytes
    content: CommitLines

    @classmethod
    def of(cls, version: int, data: bytes) -> CommitBytes:
        """Read the lines."""
        return cls(version, data, read_lines(data))

    def paths(self) -> set[str]:
        """The files whose state before the commit must be known, in every spelling."""
        actions = (action for _, action in self.content.lines)
        named = {a.path for a in actions if isinstance(a, AddFile | RemoveFile)}
        return named | {other for path in named for other in spellings(path)}


def judge_commit(
    file: CommitBytes,
    before: History,
    *,
    profile: Profile,
    table: str | None = None,
    read_data: FileReader | None = None,
) -> list[Finding]:
    """Ask every rule of commits; `before` becomes the state after it."""
    log = Log(listing=LogListing.of(()), read_data=read_data, history=before)
    entry = LogEntry(path=CommitName(file.version), size=len(file.data), mtime_ms=0)
    commit = Commit(
        version=file.version,
        entry=entry,
        data=file.data,
        content=file.content,
        before=before,
        log=log,
    )
    weighing = Weighing(profile, table)
    weighing.tell(COMMIT.run_about(commit, commit))
    before.apply(file.version, commit.actions)
    weighing.tell(vectors_take_away_what_they_say(log))
    return weighing.findings


def commit_rules_asked() -> tuple[str, ...]:
    """The rules that a commit alone is judged by."""
    return tuple(sorted({rule for _, rules in COMMIT.functions for rule in rules}))
