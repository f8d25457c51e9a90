"""Cleanup of a log: expired files by the protocol's cut-off, planned first.

    cut-off commit by SQL's times -> newest complete checkpoint at or below it -> what lies before

That checkpoint, the commit file of its version and everything later stay. Files go in ascending
order, commits before their checkpoint, so that a crash at any moment leaves a log in which every
version that was to stay can be read (DL-CLN-07).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from mirror_assets.delta.features import effective_features, unsupported_writer_features
from mirror_assets.delta.log_paths import (
    Checkpoint,
    CheckpointName,
    Compaction,
    LogEntry,
    LogListing,
    StagedCommit,
    sidecar_name,
)
from mirror_assets.delta.table_properties import DAY_MS, guarded_version, interval_ms
from mirror_assets.errors import (
    CheckpointMismatchError,
    MalformedActionError,
    TableStateError,
    UnsupportedTableError,
)
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.log_facts import LogFacts, note, read_facts
from mirror_assets.mirror.checkpoint_audit import audit, read_sidecars, require_same_state
from mirror_assets.mirror.checkpoint_pointer import read_pointer
from mirror_assets.storage.log_store import ORPHANED_S, LogKey, LogStore

_RETENTION: Final = "delta.logRetentionDuration"
_SWITCH: Final = "delta.enableExpiredLogCleanup"
_DEFAULT_RETENTION_MS: Final = 30 * DAY_MS
#: within one version: first what only hints at commits, the checkpoint last
_CUT, _COMPACTION, _STAGED, _COMMIT, _CHECKSUM, _CHECKPOINT = range(6)

#: the names of a checkpoint's sidecars; None where it cannot be read
SidecarsOf = Callable[[Checkpoint], Collection[str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPlan:
    """What goes, in this order, and from which version on everything stays."""

    delete: tuple[LogEntry, ...] = ()
    #: None: there is nothing that a cut-off could be made from
    keep_from: int | None = None
    reason: str

    @property
    def names(self) -> list[str]:
        """The names below `_delta_log`."""
        return [entry.name for entry in self.delete]


def plan_cleanup(
    listing: LogListing,
    times: Mapping[int, int],
    *,
    retention_ms: int,
    now_ms: int,
    newest_base: int,
    sidecars_of: SidecarsOf,
) -> CleanupPlan:
    """What has expired (DL-CLN-01 to 05). Pure but for `sidecars_of`, which reads checkpoints.

    `times` are the commit times by version; `newest_base` is the version of the checkpoint that
    `_last_checkpoint` names, which always stays.
    """
    cutoff_ms = _midnight(now_ms - retention_ms)
    commit = _cutoff_commit(times, cutoff_ms)
    if commit is None:
        return CleanupPlan(reason="no commit has expired")
    checkpoint = listing.newest_checkpoint(min(commit, newest_base))
    if checkpoint is None:
        return CleanupPlan(reason=f"no checkpoint stands at or below the expired version {commit}")
    keep_from = checkpoint.version
    expired = sorted(_expired(listing, keep_from), key=lambda found: found[:3])
    orphans = _orphaned_sidecars(listing, keep_from, _midnight(now_ms - DAY_MS), sidecars_of)
    return CleanupPlan(
        delete=tuple(entry for *_, entry in expired) + tuple(orphans),
        keep_from=keep_from,
        reason=f"commits up to version {commit} have expired; checkpoint {keep_from} stays",
    )


def plan_of(metastore: Metastore, store: LogStore, name: str) -> CleanupPlan:
    """The plan for a table as it is now.

    Raises TableStateError where cleanup must wait (something is unpublished, the mirror stopped,
    the log is damaged), UnsupportedTableError where it is not ours, CheckpointMismatchError if
    the checkpoint that would stay does not hold SQL's state.
    """
    facts = read_facts(metastore, name)
    properties = facts.metadata.configuration
    if properties.get(_SWITCH, "true").lower() == "false":
        return CleanupPlan(reason=f"{_SWITCH} is false")
    text = properties.get(_RETENTION)
    retention_ms = _DEFAULT_RETENTION_MS if text is None else interval_ms(text)
    if retention_ms is None:
        return CleanupPlan(reason=f"{_RETENTION} {text!r} is no interval of a fixed length")
    _require_settled(facts)
    listing = store.list()
    base = _require_whole(store, listing, facts)
    if base is None:
        return CleanupPlan(reason="the log has no checkpoint")
    plan = plan_cleanup(
        listing,
        {version: fact.timestamp_ms for version, fact in facts.commits.items()},
        retention_ms=retention_ms,
        now_ms=facts.now_ms,
        newest_base=base,
        sidecars_of=lambda checkpoint: _sidecars(store, checkpoint),
    )
    return _allowed(metastore, store, facts, listing, plan)


def apply_cleanup(metastore: Metastore, store: LogStore, name: str, plan: CleanupPlan) -> None:
    """Delete what the plan says, in its order; then what crashed writers left behind."""
    if plan.delete:
        facts = read_facts(metastore, name)
        detail = f"{len(plan.delete)} files before checkpoint {plan.keep_from}: {plan.reason}"
        note(metastore, facts, "cleanup", detail, plan.keep_from)
    for entry in plan.delete:
        store.delete(cast("LogKey", entry.path))
    store.remove_orphans(ORPHANED_S)


def _midnight(at_ms: int) -> int:
    return at_ms - at_ms % DAY_MS


def _cutoff_commit(times: Mapping[int, int], cutoff_ms: int) -> int | None:
    """The newest version that has expired, and all before it: clocks may have gone backwards."""
    newest = None
    for version in sorted(times):
        if times[version] > cutoff_ms:
            break
        newest = version
    return newest


def _expired(listing: LogListing, before: int) -> Iterator[tuple[int, int, str, LogEntry]]:
    """With version and place in the order, strictly before a version."""
    kinds = (
        (_CUT, listing.cuts),
        (_COMMIT, listing.commits),
        (_CHECKSUM, listing.checksums),
    )
    found = [(v, kind, entry) for kind, files in kinds for v, entry in files.items()]
    found += [(c.version, _CHECKPOINT, e) for c in _all_checkpoints(listing) for e in c.files]
    for version, kind, entry in found:
        if version < before:
            yield version, kind, entry.name, entry
    yield from _expired_hints(listing, before)


def _expired_hints(listing: LogListing, until: int) -> Iterator[tuple[int, int, str, LogEntry]]:
    """Compactions and staged commits, which go at that version too (DL-CLN-04)."""
    for entry in (*listing.compactions, *listing.staged_commits):
        match entry.path:
            case Compaction(first=first) if first <= until:
                yield first, _COMPACTION, entry.name, entry
            case StagedCommit(version=version) if version <= until:
                yield version, _STAGED, entry.name, entry
            case _:
                pass


def _orphaned_sidecars(
    listing: LogListing, keep_from: int, young_ms: int, sidecars_of: SidecarsOf
) -> list[LogEntry]:
    """Those that no remaining checkpoint names; none if one of these cannot be read."""
    old = {n: e for n, e in listing.sidecars.items() if e.mtime_ms < young_ms}
    for checkpoint in _all_checkpoints(listing) if old else ():
        if checkpoint.version < keep_from:
            continue
        named = sidecars_of(checkpoint)
        if named is None:
            return []
        for name in named:
            old.pop(name, None)
    return [old[name] for name in sorted(old)]


def _all_checkpoints(listing: LogListing) -> Iterator[Checkpoint]:
    for checkpoints in listing.checkpoints.values():
        yield from checkpoints
    yield from listing.incomplete_checkpoints


def _sidecars(store: LogStore, checkpoint: Checkpoint) -> Collection[str] | None:
    """V2 content may also be in a file of the classic name (DL-V2): all are looked into."""
    try:
        return {
            sidecar_name(sidecar.path).name
            for entry in checkpoint.files
            for sidecar in read_sidecars(store, cast("CheckpointName", entry.path))
        }
    except (CheckpointMismatchError, MalformedActionError):
        return None


def _require_settled(facts: LogFacts) -> None:
    table = facts.table
    if table.state != TableState.ACTIVE or facts.mirror_state != "OK":
        state = facts.mirror_state if facts.mirror_state != "OK" else table.state
        message = f"no cleanup while the table is {state}"
        remedy = f"`mirror-assets status {table.name}` says why; settle that first"
        raise TableStateError(message, table=table.name, remedy=remedy)
    if table.mirrored_version < table.head_version:
        message = f"no cleanup: version {table.mirrored_version + 1} is not published yet"
        remedy = f"`mirror-assets mirror {table.name}` publishes what is pending"
        raise TableStateError(message, table=table.name, remedy=remedy)
    if unsupported := unsupported_writer_features(facts.protocol):
        message = f"no cleanup: the table has the feature {min(unsupported)!r}"
        remedy = "clean it with the engine that made the table"
        raise UnsupportedTableError(message, table=table.name, rule="DL-CLN-10", remedy=remedy)


def _require_whole(store: LogStore, listing: LogListing, facts: LogFacts) -> int | None:
    """The version of the checkpoint that the pointer names; None if the log has no checkpoint.

    A log that is damaged, or that readers find only through what would be deleted, stays as it is.
    """
    head = facts.table.head_version
    pointer = read_pointer(store)
    if not listing.checkpoints and pointer is None:
        return None
    problem = None
    if pointer is None or pointer.version not in listing.checkpoints:
        problem = "_last_checkpoint does not name a checkpoint that is there (DL-LCP-02)"
    elif listing.gaps() or (listing.last_commit if listing.commits else pointer.version) != head:
        problem = f"the log's commit files do not lead to version {head} without a gap"
    if problem is None and pointer is not None:
        return pointer.version
    remedy = f"`mirror-assets reconcile {facts.table.name} --mode full` tells what to do"
    raise TableStateError(f"no cleanup: {problem}", table=facts.table.name, remedy=remedy)


def _allowed(
    metastore: Metastore, store: LogStore, facts: LogFacts, listing: LogListing, plan: CleanupPlan
) -> CleanupPlan:
    """The plan, if what would stay is right and nothing protected would go (DL-CLN-09)."""
    keep_from = plan.keep_from
    if keep_from is None or not plan.delete:
        return plan
    if "checkpointProtection" in effective_features(facts.protocol):
        guarded = guarded_version(facts.protocol, facts.metadata)
        if guarded is None or keep_from < guarded:
            reason = f"checkpointProtection keeps versions below {guarded} together"
            return CleanupPlan(keep_from=listing.first_commit, reason=reason)
    seen = audit(store, listing.checkpoints[keep_from][0])
    if keep_from >= facts.table.floor_version:
        name = facts.table.name
        source = CheckpointSource.open(metastore, name, keep_from, now_ms=facts.now_ms)
        require_same_state(seen.content, source)
    return plan
