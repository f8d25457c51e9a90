"""The reconciler: compares a log with SQL, plans, and repairs what is provably safe.

    incremental   from the newest published version on
    smart         the whole listing: gaps, sizes, foreign files, the pointer
    full          also the digest of every commit file, and the content of the checkpoint in use

A mode whose base is missing hands over to the next one by itself. After repairs the log is looked
at again, so that a report tells what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mirror_assets.delta.last_checkpoint import CheckpointHint, parse_last_checkpoint
from mirror_assets.delta.log_paths import Checkpoint, LastCheckpoint, LogEntry
from mirror_assets.errors import CheckpointMismatchError, MalformedActionError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.log_facts import CommitFact, LogFacts, read_facts
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.checkpoint_audit import audit, require_same_state
from mirror_assets.mirror.inspection import Inspection, Repair, RepairKind, missing_versions
from mirror_assets.mirror.log_digests import Differing, differing
from mirror_assets.mirror.repairs import apply_repairs
from mirror_assets.storage.log_store import LogStore


class Mode(StrEnum):
    """How much is looked at."""

    INCREMENTAL = "incremental"
    SMART = "smart"
    FULL = "full"

    @property
    def higher(self) -> Mode:
        """The next one upward."""
        return Mode.SMART if self is Mode.INCREMENTAL else Mode.FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What is wrong now, what could be done about it, and what was done."""

    table: str
    #: the mode that gave the findings, after falling back
    mode: Mode
    findings: tuple[Finding, ...]
    plan: tuple[Repair, ...]
    applied: tuple[Repair, ...] = ()

    @property
    def has_errors(self) -> bool:
        """Whether something is left that readers may stumble over."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def recommended_next_mode(self) -> Mode:
        """Look closer after anything unusual, else at what is new."""
        unusual = self.has_errors or self.plan or self.applied
        return self.mode.higher if unusual else Mode.INCREMENTAL


def reconcile(
    metastore: Metastore,
    store: LogStore,
    name: str,
    mode: Mode,
    *,
    apply: bool = False,
    read_all: Differing = differing,
) -> Report:
    """Compare the log of a table with SQL; with `apply`, make the planned repairs.

    `read_all` is who reads every byte, where the mode asks for it.
    Raises TableNotFoundError, and the errors of the store. Without `apply` nothing is written.
    A table that was released is not looked at: its log belongs to others.
    """
    if LogReader(metastore).table(name).state == TableState.RELEASED:
        return Report(table=name, mode=mode, findings=(_released(name),), plan=())
    mode, seen = _inspect(metastore, store, name, mode, read_all)
    plan = tuple(seen.repairs)
    if not apply or not plan:
        return Report(table=name, mode=mode, findings=tuple(seen.findings), plan=plan)
    applied, refused = apply_repairs(metastore, store, seen)
    mode, again = _inspect(metastore, store, name, mode, read_all)
    findings = (*again.findings, *refused)
    return Report(table=name, mode=mode, findings=findings, plan=plan, applied=tuple(applied))


def _released(name: str) -> Finding:
    message = "the table was released: its log belongs to file-based writers, and is not compared"
    remedy = f"`mirror-assets adopt {name}` shows what taking it back would bring"
    return Finding(
        rule="MA-108", severity=Severity.INFO, message=message, remedy=remedy, table=name
    )


def _inspect(
    metastore: Metastore, store: LogStore, name: str, mode: Mode, read_all: Differing
) -> tuple[Mode, Inspection]:
    if mode is Mode.INCREMENTAL:
        look = _look_at_new(metastore, store, name)
        if isinstance(look, Inspection):
            return mode, _finished(look)
        mode = look
    # in this order: what is published meanwhile is known to SQL, what is pointed at is listed
    pointer, listing = store.read(LastCheckpoint()), store.list()
    seen = Inspection(facts=read_facts(metastore, name), listing=listing, pointer=pointer)
    other = _other_sizes(seen)
    if other or _checkpoint_has_other_size(seen):
        mode = Mode.FULL  # somebody wrote here: that other sizes are right proves nothing
    if mode is Mode.FULL:
        other += read_all(store, _same_sizes(seen))
        _audit_checkpoints(metastore, store, seen)
    for entry, commit in sorted(other, key=lambda found: found[1].version):
        seen.note_other_bytes(entry, commit.version)
    seen.note_foreign_versions()
    _look_beyond(store, seen)
    seen.note_incomplete_checkpoints()
    seen.note_missing(_missing(store, seen))
    seen.note_names()
    seen.judge_pointer()
    return mode, _finished(seen)


def _look_at_new(metastore: Metastore, store: LogStore, name: str) -> Inspection | Mode:
    """From the newest published version on; a higher mode if its commit file is gone or another."""
    base = LogReader(metastore).table(name).mirrored_version
    listing = store.list(after=base - 1 if base > 0 else None)
    seen = Inspection(facts=read_facts(metastore, name), listing=listing)
    commit = seen.facts.commits.get(base)
    if commit is not None:
        entry = listing.commits.get(base)
        if entry is None:
            return Mode.SMART
        if list(differing(store, [(entry, commit)])):
            return Mode.FULL
    seen.note_foreign_versions()
    _look_beyond(store, seen)
    return seen


def _look_beyond(store: LogStore, seen: Inspection) -> None:
    """Commit files of versions that SQL has, but not as published."""
    facts = seen.facts
    beyond = [
        (entry, facts.commits[version])
        for version, entry in seen.listing.commits.items()
        if version in facts.commits and version > facts.table.mirrored_version
    ]
    others = {commit.version for _, commit in differing(store, beyond)}
    for entry, commit in beyond:
        if commit.version in others:
            seen.note_other_bytes(entry, commit.version)
        else:
            message = "the commit file is there, though not recorded as published"
            remedy = "the next `mirror` adopts it"
            seen.find(
                "MA-404",
                message,
                severity=Severity.INFO,
                version=commit.version,
                file=entry.name,
                remedy=remedy,
            )


def _published(seen: Inspection) -> Iterable[tuple[LogEntry, CommitFact]]:
    facts = seen.facts
    for version, entry in seen.listing.commits.items():
        if version in facts.commits and version <= facts.table.mirrored_version:
            yield entry, facts.commits[version]


def _other_sizes(seen: Inspection) -> list[tuple[LogEntry, CommitFact]]:
    return [(e, commit) for e, commit in _published(seen) if e.size != commit.byte_length]


def _checkpoint_has_other_size(seen: Inspection) -> bool:
    """Whether the checkpoint that the pointer names is of another length than it says.

    A V2 checkpoint is not judged: its length includes the sidecars.
    """
    hint = parse_last_checkpoint(seen.pointer or b"")
    if not isinstance(hint, CheckpointHint) or hint.size_in_bytes is None or hint.v2_checkpoint:
        return False
    found = seen.listing.checkpoints.get(hint.version, ())
    sizes = {sum(entry.size for entry in checkpoint.files) for checkpoint in found}
    return bool(sizes) and hint.size_in_bytes not in sizes


def _same_sizes(seen: Inspection) -> list[tuple[LogEntry, CommitFact]]:
    return [(e, commit) for e, commit in _published(seen) if e.size == commit.byte_length]


def _missing(store: LogStore, seen: Inspection) -> list[int]:
    """Seen missing twice: while a cleanup runs, the pages of one listing do not fit together."""
    missing = missing_versions(seen.listing, seen.facts, seen.good_checkpoints())
    if not missing:
        return []
    still = set(missing_versions(store.list(), seen.facts, seen.good_checkpoints()))
    return [version for version in missing if version in still]


def _audit_checkpoints(metastore: Metastore, store: LogStore, seen: Inspection) -> None:
    """The newest one, and the one that the pointer names: those are what readers open."""
    pointer = parse_last_checkpoint(seen.pointer or b"")
    good = seen.good_checkpoints()
    wanted = {max(good, default=-1), pointer.version if isinstance(pointer, CheckpointHint) else -1}
    for version in sorted(wanted & good.keys(), reverse=True):
        try:
            _require_sound(metastore, store, seen.facts, good[version])
        except (CheckpointMismatchError, MalformedActionError) as error:
            seen.note_bad_checkpoint(good[version], error.message, error.rule or "DL-CP-01")


def _require_sound(
    metastore: Metastore, store: LogStore, facts: LogFacts, checkpoint: Checkpoint
) -> None:
    found = audit(store, checkpoint)
    if checkpoint.version >= facts.table.floor_version:
        source = CheckpointSource.open(
            metastore, facts.table.name, checkpoint.version, now_ms=facts.now_ms
        )
        require_same_state(found.content, source)


def _finished(seen: Inspection) -> Inspection:
    """Heal the statuses of files that are as they should be; leave a foreign log alone."""
    wrong = {finding.version for finding in seen.findings if finding.version is not None}
    for version in seen.facts.unsettled:
        entry, commit = seen.listing.commits.get(version), seen.facts.commits.get(version)
        if entry and commit and entry.size == commit.byte_length and version not in wrong:
            reason = "the commit file is there, its status says otherwise"
            seen.plan(RepairKind.STATUS, version, entry.name, reason)
    if seen.is_foreign:
        safe = (RepairKind.REPUBLISH, RepairKind.STATUS)
        seen.repairs[:] = [repair for repair in seen.repairs if repair.kind in safe]
    state, name = seen.facts.mirror_state, seen.facts.table.name
    is_clean = not any(finding.severity is Severity.ERROR for finding in seen.findings)
    if state not in ("OK", "PAUSED") and is_clean:
        message = f"the mirror stopped ({state}), and nothing in the log explains it any more"
        remedy = f"`mirror-assets resume {name}`"
        seen.find("MA-108", message, severity=Severity.WARNING, remedy=remedy)
    return seen


def highest(modes: Sequence[Mode]) -> Mode:
    """The one that looks at most; incremental without any."""
    order = list(Mode)
    return max(modes, key=order.index, default=Mode.INCREMENTAL)
