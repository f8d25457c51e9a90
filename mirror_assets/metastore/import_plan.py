"""What an import takes over: decided from the listing of a log alone.

The state in SQL begins at a floor version. It is 0 where all commits are there; else a checkpoint
tells the state at the floor, and every commit above it must be there. Commits below the floor are
history: their bytes can be written again, but they say nothing about the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mirror_assets.delta.log_paths import Checkpoint, LogEntry, LogListing
from mirror_assets.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

History = Literal["full", "checkpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A floor version, and the checkpoint that tells its state; none where commit 0 does."""

    floor: int
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """Where an import may begin, in order of preference, and where it ends."""

    head: int
    starts: tuple[Start, ...]
    history: History
    #: those of severity error refuse the import
    findings: tuple[Finding, ...]

    def commits(self, listing: LogListing, start: Start) -> list[LogEntry]:
        """The commit files to import, ascending; with history those below the floor, too."""
        lowest = start.floor if self.history == "checkpoint" else 0
        return [e for v, e in listing.commits.items() if lowest <= v <= self.head]


def plan_import(
    listing: LogListing, *, up_to_version: int | None = None, history: History = "full"
) -> ImportPlan:
    """Decide the range; findings of severity error say why there is none."""
    newest = max([*listing.commits, *listing.checkpoints], default=None)
    findings = list(_oddities(listing))
    if newest is None:
        message = "the log holds neither a commit nor a complete checkpoint"
        findings.append(_missing("DL-FILE-04", message))
        return ImportPlan(head=-1, starts=(), history=history, findings=tuple(findings))
    head = newest if up_to_version is None else up_to_version
    if not 0 <= head <= newest:
        message = f"version {head} is asked for, the newest of the log is {newest}"
        findings.append(_missing("DL-FILE-04", message, version=head))
        return ImportPlan(head=head, starts=(), history=history, findings=tuple(findings))
    findings += _foreign_owner(listing, head)
    starts = tuple(_starts(listing, head, history))
    if not starts:
        findings.append(_why_not(listing, head))
    elif history == "checkpoint" and starts[0].checkpoint is None:
        message = "no checkpoint to begin at: all commits are imported"
        findings.append(_finding("DL-FILE-04", Severity.INFO, message))
    if head < newest:
        message = f"the log goes on to version {newest}, the import ends at {head}"
        findings.append(_finding("DL-FILE-03", Severity.WARNING, message, version=head))
    return ImportPlan(head=head, starts=starts, history=history, findings=tuple(findings))


def _starts(listing: LogListing, head: int, history: History) -> Iterator[Start]:
    lowest = _lowest_contiguous(listing, head)
    usable = [version for version in listing.checkpoints if lowest - 1 <= version <= head]
    if lowest == 0 and history == "full":
        yield Start(floor=0)
        return
    for version in sorted(usable, reverse=history == "checkpoint"):
        for checkpoint in listing.checkpoints[version]:
            yield Start(floor=version, checkpoint=checkpoint)
    if lowest == 0:
        yield Start(floor=0)


def _lowest_contiguous(listing: LogListing, head: int) -> int:
    """The lowest version from which on every commit up to the head is there."""
    lowest = head + 1
    while lowest - 1 in listing.commits:
        lowest -= 1
    return lowest


def _why_not(listing: LogListing, head: int) -> Finding:
    lowest = _lowest_contiguous(listing, head)
    below = [version for version in listing.commits if version < lowest]
    if below:
        gap = f"{below[-1] + 1} to {lowest - 1}" if lowest - 1 > below[-1] + 1 else f"{lowest - 1}"
        message = f"no commit file of version {gap}, and no checkpoint above it"
        return _missing("DL-FILE-03", message, version=head)
    message = "commit 0 is gone, and no complete checkpoint stands for it"
    return _missing("DL-FILE-04", message, version=head)


def _foreign_owner(listing: LogListing, head: int) -> Iterator[Finding]:
    for entry in listing.staged_commits:
        version = getattr(entry.path, "version", -1)
        if version > head:
            message = "a staged commit: another catalog owns the table"
            remedy = "publish all commits and drop the table feature catalogManaged first"
            yield _finding(
                "DL-CAT-08",
                Severity.ERROR,
                message,
                version=version,
                file=entry.name,
                remedy=remedy,
            )


def _oddities(listing: LogListing) -> Iterator[Finding]:
    for checkpoint in listing.incomplete_checkpoints:
        message = "an incomplete checkpoint is ignored, as readers do"
        yield _finding(
            "DL-FILE-06",
            Severity.INFO,
            message,
            version=checkpoint.version,
            file=checkpoint.names[0],
        )
    for entry in listing.misnamed_commits:
        unknown = int(entry.name.partition(".")[0]) not in listing.commits
        severity = Severity.ERROR if unknown else Severity.WARNING
        message = "some readers take it for a commit, others ignore it"
        remedy = "name it with 20 digits, or take it away"
        yield _finding("DL-FILE-01", severity, message, file=entry.name, remedy=remedy)


def _missing(rule: str, message: str, *, version: int | None = None) -> Finding:
    remedy = "restore the missing files"
    return _finding(rule, Severity.ERROR, message, version=version, remedy=remedy)


def _finding(
    rule: str,
    severity: Severity,
    message: str,
    *,
    version: int | None = None,
    file: str | None = None,
    remedy: str = "",
) -> Finding:
    return Finding(
        rule=rule, severity=severity, message=message, version=version, file=file, remedy=remedy
    )
