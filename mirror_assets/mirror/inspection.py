"""A log beside what SQL says of it: findings, and the repairs that are provably safe.

Safe is to write a commit file that is missing with the very bytes that were published, to build a
checkpoint where there is none, and to point at a checkpoint that holds SQL's state. What others
wrote is never overwritten: it is a finding, and a person decides.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Final

from mirror_assets.delta.last_checkpoint import (
    CheckpointHint,
    ChecksumVerdict,
    parse_last_checkpoint,
    verify_checksum,
)
from mirror_assets.delta.log_paths import (
    Checkpoint,
    CommitName,
    LastCheckpoint,
    LogEntry,
    LogListing,
    MultiPartCheckpoint,
)
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.log_facts import LogFacts

_FOREIGN_RULES: Final = ("DL-FILE-02", "MA-403")


class RepairKind(StrEnum):
    """In the order in which they are made."""

    REPUBLISH = "republish"
    CHECKPOINT = "checkpoint"
    POINTER = "pointer"
    STATUS = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing to write, and why."""

    kind: RepairKind
    table: str
    version: int
    file: str | None
    reason: str

    def as_dict(self) -> dict[str, str | int | None]:
        """The repair as the `--json` document shows it."""
        return asdict(self)


@dataclass(slots=True, kw_only=True)
class Inspection:
    """What one look at a log collects."""

    facts: LogFacts
    listing: LogListing
    #: the bytes of `_last_checkpoint`
    pointer: bytes | None = None
    findings: list[Finding] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    #: files of checkpoints whose content was found wrong
    bad_checkpoints: set[str] = field(default_factory=set)

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else wrote to the log."""
        return any(f.rule in _FOREIGN_RULES and f.severity == "error" for f in self.findings)

    def find(
        self,
        rule: str,
        message: str,
        *,
        severity: Severity = Severity.ERROR,
        version: int | None = None,
        file: str | None = None,
        remedy: str = "",
    ) -> None:
        """Note a finding."""
        self.findings.append(
            Finding(
                rule=rule,
                severity=severity,
                message=message,
                remedy=remedy,
                table=self.facts.table.name,
                version=version,
                file=file,
            )
        )

    def plan(self, kind: RepairKind, version: int, file: str | None, reason: str) -> None:
        """Note a repair, once."""
        name = self.facts.table.name
        repair = Repair(kind=kind, table=name, version=version, file=file, reason=reason)
        if all((r.kind, r.version) != (kind, version) for r in self.repairs):
            self.repairs.append(repair)

    def good_checkpoints(self) -> dict[int, Checkpoint]:
        """By version ascending, of published versions, but for those found wrong."""
        published = self.facts.table.mirrored_version
        found = {}
        for version, checkpoints in self.listing.checkpoints.items():
            good = [c for c in checkpoints if not self.bad_checkpoints.intersection(c.names)]
            if good and version <= published:
                found[version] = good[0]
        return found

    def note_missing(self, versions: list[int]) -> None:
        """Commit files that were published and are gone (DL-FILE-03)."""
        for version in versions:
            name = CommitName(version).name
            table = self.facts.table.name
            remedy = f"`mirror-assets reconcile {table} --apply` publishes it again, byte for byte"
            message = "a commit file that was published is missing"
            self.find("DL-FILE-03", message, version=version, file=name, remedy=remedy)
            self.plan(RepairKind.REPUBLISH, version, name, message)

    def note_other_bytes(self, entry: LogEntry, version: int) -> None:
        """A commit file that says something else than SQL (DL-FILE-02)."""
        commit = self.facts.commits[version]
        name = self.facts.table.name
        what = "is empty" if not entry.size else "holds other bytes than SQL"
        self.find(
            "DL-FILE-02",
            f"the commit file {what} ({entry.size} of {commit.byte_length} bytes)",
            version=version,
            file=entry.name,
            remedy=f"`mirror-assets diff {name} --version {version}` shows both; it is never "
            "overwritten: move the file away yourself, then reconcile again to publish SQL's, "
            f"or `mirror-assets fork {name} --to URI` goes on elsewhere",
        )

    def note_foreign_versions(self) -> None:
        """Commits and checkpoints above what SQL knows."""
        table = self.facts.table
        for version, entry in self.listing.commits.items():
            if version > table.head_version:
                message = f"the log goes beyond SQL, whose head is version {table.head_version}"
                remedy = (
                    f"`mirror-assets diff {table.name} --version {version}` shows it; "
                    f"`mirror-assets adopt {table.name}` takes the log's versions over, "
                    f"`mirror-assets fork {table.name} --to URI` goes on elsewhere"
                )
                self.find("MA-403", message, version=version, file=entry.name, remedy=remedy)
        for version, checkpoints in self.listing.checkpoints.items():
            if version > table.mirrored_version:
                message = "a checkpoint of a version that is not published"
                remedy = "none of ours; find out who wrote it, then remove it"
                for found in checkpoints:
                    file = found.names[0]
                    self.find("MA-403", message, version=version, file=file, remedy=remedy)

    def note_names(self) -> None:
        """Files that readers ignore, or take for commits by mistake."""
        for entry in self.listing.misnamed_commits:
            message = "some readers take it for a commit, others do not"
            self.find("DL-FILE-01", message, file=entry.name, remedy="move it away")
        misnamed = {entry.name for entry in self.listing.misnamed_commits}
        for entry in self.listing.unknown:
            if entry.name not in misnamed:
                message = "a file that the protocol does not name; readers ignore it"
                self.find("DL-FILE-15", message, severity=Severity.INFO, file=entry.name)

    def note_bad_checkpoint(self, checkpoint: Checkpoint, reason: str, rule: str) -> None:
        """One that readers would stumble over; a newer one leads them around it."""
        self.bad_checkpoints.update(checkpoint.names)
        version, published = checkpoint.version, self.facts.table.mirrored_version
        newer = any(good > version for good in self.good_checkpoints())
        remedy = "`--apply` builds a newer one, which readers then use"
        if version >= published:
            remedy = "it is never overwritten: commit once, mirror, and reconcile with `--apply`"
        elif newer:
            remedy = "readers use a newer one; cleanup removes it when it has expired"
        self.find(
            rule,
            reason,
            severity=Severity.WARNING if newer else Severity.ERROR,
            version=version,
            file=checkpoint.names[0],
            remedy=remedy,
        )
        if not newer and version < published:
            self.plan(RepairKind.CHECKPOINT, published, None, f"{checkpoint.names[0]} is unusable")

    def note_incomplete_checkpoints(self) -> None:
        """Empty files break readers; where parts are missing, they look elsewhere (DL-FILE-06)."""
        for checkpoint in self.listing.incomplete_checkpoints:
            if any(entry.size == 0 for entry in checkpoint.files):
                self.note_bad_checkpoint(checkpoint, "the checkpoint is empty", "DL-FILE-13")
            else:
                message = "parts of the checkpoint are missing; readers do without it"
                self.find(
                    "DL-FILE-06",
                    message,
                    severity=Severity.WARNING,
                    version=checkpoint.version,
                    file=checkpoint.names[0],
                )

    def judge_pointer(self) -> None:
        """`_last_checkpoint` must name a checkpoint that is there and good (DL-LCP-02)."""
        data, good = self.pointer, self.good_checkpoints()
        severity = Severity.ERROR
        if data is None:
            if not good:
                return
            wrong = "there is no _last_checkpoint, so some readers find no checkpoint"
            severity = Severity.ERROR if self.listing.first_commit else Severity.WARNING
        else:
            wrong = self._wrong_pointer(data, good)
            if not wrong:
                self._judge_checksum(data)
                return
        file = LastCheckpoint().name
        planned = [r.version for r in self.repairs if r.kind is RepairKind.CHECKPOINT]
        target = max([*good, *planned], default=self.facts.table.mirrored_version)
        remedy = f"`--apply` points it at the checkpoint of version {target}, once verified"
        is_bad = target not in good and target not in planned and self._has_bad(target)
        if is_bad:
            remedy = "no checkpoint is sound: commit once, mirror, and reconcile with `--apply`"
        self.find("DL-LCP-02", wrong, severity=severity, file=file, remedy=remedy)
        if target >= 0 and not is_bad:
            self.plan(RepairKind.POINTER, target, file, wrong)

    def _wrong_pointer(self, data: bytes, good: dict[int, Checkpoint]) -> str:
        hint = parse_last_checkpoint(data)
        if not isinstance(hint, CheckpointHint):
            return f"_last_checkpoint cannot be read: {hint.reason}"
        if hint.version > self.facts.table.mirrored_version:
            return f"_last_checkpoint names version {hint.version}, which is not published"
        named = self.listing.checkpoints.get(hint.version, ())
        named = tuple(c for c in named if not self.bad_checkpoints.intersection(c.names))
        if hint.version not in good or not any(_is_named(hint, c) for c in named):
            why = "is unsound" if self._has_bad(hint.version) else "is not there"
            return f"_last_checkpoint names a checkpoint of version {hint.version} that {why}"
        return ""

    def _has_bad(self, version: int) -> bool:
        incomplete = (c for c in self.listing.incomplete_checkpoints if c.version == version)
        found = (*self.listing.checkpoints.get(version, ()), *incomplete)
        return any(self.bad_checkpoints.intersection(checkpoint.names) for checkpoint in found)

    def _judge_checksum(self, data: bytes) -> None:
        try:
            valid = verify_checksum(data) is not ChecksumVerdict.INVALID
        except ValueError:
            valid = False
        if not valid:
            message = "the checksum in _last_checkpoint is not that of its content"
            remedy = "the next checkpoint replaces it"
            file = LastCheckpoint().name
            self.find("DL-LCP-08", message, severity=Severity.WARNING, file=file, remedy=remedy)


def missing_versions(
    listing: LogListing, facts: LogFacts, bases: dict[int, Checkpoint]
) -> list[int]:
    """Published versions without a commit file, but for those that a cleanup may have removed.

    A log may begin anywhere if a checkpoint stands for what is gone; from there on, and from the
    oldest commit file on, it has no gap.
    """
    absent = [
        version
        for version in facts.commits
        if version <= facts.table.mirrored_version and version not in listing.commits
    ]
    if not absent or not bases:
        return absent
    begin = min(bases)
    if listing.first_commit is not None:
        begin = min(begin, listing.first_commit)
    return [version for version in absent if version >= begin]


def _is_named(hint: CheckpointHint, checkpoint: Checkpoint) -> bool:
    first = checkpoint.files[0].path
    if isinstance(first, MultiPartCheckpoint):
        return hint.parts == first.parts
    if hint.v2_checkpoint is not None:
        return hint.v2_checkpoint.get("path") == first.name
    return hint.parts is None
