"""Rules of checkpoints by what they hold (DL-CP, DL-V2, DL-MP, DL-SC, DL-CPM)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import numpy as np

from mirror_assets.conformance.checkpoint_scan import foreign_actions, is_v2
from mirror_assets.conformance.checks import CHECKPOINT, Found
from mirror_assets.conformance.file_columns import Comparison, FileColumns, Numbers, repeats
from mirror_assets.conformance.history import History
from mirror_assets.conformance.views import CheckpointView
from mirror_assets.delta.actions import (
    Action,
    CheckpointMetadata,
    DomainMetadata,
    MetaData,
    TableProtocol,
    Txn,
)
from mirror_assets.delta.commit_file import encode_action
from mirror_assets.delta.features import check_protocol, effective_features
from mirror_assets.delta.log_paths import (
    ClassicCheckpoint,
    MultiPartCheckpoint,
    V2Checkpoint,
    sidecar_name,
)
from mirror_assets.delta.schema import short
from mirror_assets.delta.table_properties import tombstone_cutoff_ms
from mirror_assets.findings import Severity

#: differing files that are named
_SHOWN: Final = 5
_Kind = TypeVar("_Kind")
_FEATURE_LISTS: Final = frozenset({"DL-PROT-03", "DL-PROT-04"})


@CHECKPOINT.checks("DL-FILE-13", "DL-V2-05", "DL-CP-02", "DL-CP-03")
def files_are_readable_and_rows_are_actions(view: CheckpointView) -> Iterator[Found]:
    yield from view.scan.found
    for action in foreign_actions(view.scan):
        yield view.found("DL-CP-03", f"a {type(action).__name__} action in a checkpoint")


@CHECKPOINT.checks("DL-CP-04", "DL-CPM-01", "DL-V2-02")
def single_actions_are_there_once(view: CheckpointView) -> Iterator[Found]:
    if not view.scan.is_readable:
        return
    counts = view.scan.counts
    for name in ("protocol", "metaData"):
        if counts[name] != 1:
            yield view.found("DL-CP-04", f"the checkpoint has {counts[name]} {name} rows")
    heads = [a for a in view.scan.others if isinstance(a, CheckpointMetadata)]
    if is_v2(view.scan) and len(heads) != 1:
        yield view.found("DL-V2-02", f"there are {len(heads)} checkpointMetadata rows")
    for head in heads:
        if head.version != view.version:
            message = f"checkpointMetadata names the version {head.version}"
            yield view.found("DL-CPM-01", message)
        yield from _compare_tags(view, head)


def _compare_tags(view: CheckpointView, head: CheckpointMetadata) -> Iterator[Found]:
    """What the head tells of the sidecars, if it does."""
    scan, tops = view.scan, set(view.checkpoint.names)
    actions = sum(count for name, count in scan.placed.items() if name not in tops)
    for tag, counted in (
        ("sidecarNumActions", actions),
        ("sidecarSizeInBytes", sum(sidecar.size_in_bytes for sidecar in scan.sidecars)),
        ("numOfAddFiles", scan.counts["add"]),
    ):
        told = (head.tags or {}).get(tag)
        if told is not None and told != str(counted):
            message = f"the tag {tag} is {short(told)}, the checkpoint has {counted}"
            yield view.found("DL-CPM-01", message)


@CHECKPOINT.checks("DL-CP-11", "DL-PROT-02", "DL-PROT-06", "DL-PROT-07", "DL-PROT-09")
def the_protocol_row_is_sound(view: CheckpointView) -> Iterator[Found]:
    for protocol in view.scan.others:
        if isinstance(protocol, TableProtocol):
            for finding in check_protocol(protocol):
                rule = "DL-CP-11" if finding.rule in _FEATURE_LISTS else finding.rule
                mild = None if finding.severity is Severity.ERROR else finding.severity
                yield view.found(rule, finding.message, at_most=mild)


@CHECKPOINT.checks("DL-CP-05", "DL-REC-05", "DL-MP-02")
def no_file_is_there_twice(view: CheckpointView) -> Iterator[Found]:
    files = view.scan.files
    keys = files.logical_key
    again = repeats(keys)
    rule = "DL-MP-02" if len(view.checkpoint.files) > 1 else "DL-CP-05"
    for key in again[:_SHOWN]:
        path = view.scan.names.of(int(files.key[np.argmax(keys == key)]))
        yield view.found(rule, f"{short(path)} is added twice: readers count it twice")
    both = _common(keys, view.scan.removed_keys())
    if both:
        yield view.found("DL-REC-05", f"{both} files are both live and removed")


@CHECKPOINT.checks("DL-REC-05")
def every_key_is_there_once(view: CheckpointView) -> Iterator[Found]:
    scan = view.scan
    apps = Counter(action.app_id for action in scan.others if isinstance(action, Txn))
    domains = Counter(action.domain for action in scan.others if isinstance(action, DomainMetadata))
    for kind, names in (("txn", apps), ("domainMetadata", domains)):
        for name, count in names.items():
            if count > 1:
                yield view.found("DL-REC-05", f"{count} {kind} actions of {short(name)}")
    if twice := len(repeats(scan.removed_keys())):
        yield view.found("DL-REC-05", f"{twice} files are removed twice")
    twice = len(repeats(scan.files.key)) - len(repeats(scan.files.logical_key))
    if twice > 0:
        yield view.found("DL-REC-05", f"{twice} paths are live with two deletion vectors")


@CHECKPOINT.checks("DL-CP-01", "DL-CP-15")
def live_files_are_those_of_the_commits(view: CheckpointView) -> Iterator[Found]:
    replayed = view.replayed
    if replayed is None or replayed.live is None or not view.scan.is_readable:
        return
    compared = replayed.live.files().against(view.scan.files)
    for files, name_of, what in (
        (compared.only_here, replayed.live.path_of, "is live by the commits, but not in it"),
        (compared.only_there, view.scan.names.of, "is in it, but not live by the commits"),
    ):
        yield from _named(view, files, name_of, what, "DL-CP-01")
    yield from _compare_members(view, compared)


@CHECKPOINT.checks("DL-CP-01")
def other_actions_are_those_of_the_commits(view: CheckpointView) -> Iterator[Found]:
    replayed = view.replayed
    if replayed is None or not view.scan.is_readable:
        return
    others = view.scan.others
    for name, told, expected in (
        ("protocol", _first(others, TableProtocol), replayed.protocol),
        ("metaData", _first(others, MetaData), replayed.metadata),
    ):
        if told is not None and expected is not None and not _same(told, expected):
            yield view.found("DL-CP-01", f"{name} differs from that of the commits")
    yield from _compare_txns(view, replayed)
    yield from _compare_domains(view, replayed)


@CHECKPOINT.checks("DL-CP-01")
def removed_domains_stay_out(view: CheckpointView) -> Iterator[Found]:
    for action in view.scan.others:
        if isinstance(action, DomainMetadata) and action.removed:
            message = f"the domain {short(action.domain)} is removed, and yet in the checkpoint"
            yield view.found("DL-CP-01", message, at_most=Severity.WARNING)


def _compare_txns(view: CheckpointView, replayed: History) -> Iterator[Found]:
    txns = {a.app_id: a.version for a in view.scan.others if isinstance(a, Txn)}
    for app, txn in replayed.txns.items():
        if app not in txns and not _txns_expire(replayed):
            yield view.found("DL-CP-01", f"the txn of {short(app)} is not in the checkpoint")
        elif app in txns and txns[app] != txn.version:
            message = f"the txn of {short(app)} is {txns[app]}, by the commits {txn.version}"
            yield view.found("DL-CP-01", message)
    for app in txns.keys() - replayed.txns.keys():
        yield view.found("DL-CP-01", f"the txn of {short(app)} is in no commit")


def _compare_domains(view: CheckpointView, replayed: History) -> Iterator[Found]:
    told = (a for a in view.scan.others if isinstance(a, DomainMetadata))
    domains = {action.domain: action for action in told if not action.removed}
    for domain in domains.keys() ^ replayed.domains.keys():
        where = "not in the checkpoint" if domain in replayed.domains else "only in the checkpoint"
        yield view.found("DL-CP-01", f"the domain {short(domain)} is {where}")
    for domain in domains.keys() & replayed.domains.keys():
        if domains[domain].configuration != replayed.domains[domain].configuration:
            yield view.found("DL-CP-01", f"the domain {short(domain)} differs from the commits")


@CHECKPOINT.checks("DL-REC-06")
def tombstones_are_kept_while_they_matter(view: CheckpointView) -> Iterator[Found]:
    history = view.replayed
    if history is None or history.commit_ms is None or not view.scan.is_readable:
        return
    # the checkpoint is younger than its commit: what had expired then, has now
    cutoff = tombstone_cutoff_ms(history.configuration, history.commit_ms)
    expired = np.count_nonzero(view.scan.removed_times() <= cutoff)
    if expired:
        message = f"{expired} tombstones had expired when the version was committed"
        yield view.found("DL-REC-06", message, at_most=Severity.WARNING)
    written_ms = min(entry.mtime_ms for entry in view.checkpoint.files)
    cutoff = tombstone_cutoff_ms(history.configuration, written_ms)
    wanted = [key for key, when in history.tombstones.items() if when > cutoff]
    missing = len(wanted) - _common(np.array(wanted, np.int64), view.scan.removed_keys())
    if missing:
        message = f"{missing} tombstones are not in the checkpoint, though they have not expired"
        yield view.found("DL-REC-06", message)


@CHECKPOINT.checks("DL-V2-01", "DL-V2-06", "DL-V2-09", "DL-MP-01")
def name_and_content_agree(view: CheckpointView) -> Iterator[Found]:
    if not view.scan.is_readable:
        return
    path, content_is_v2 = view.checkpoint.files[0].path, is_v2(view.scan)
    protocol = _first(view.scan.others, TableProtocol)
    features = effective_features(protocol) if protocol else frozenset()
    if content_is_v2 and "v2Checkpoint" not in features:
        yield view.found("DL-V2-01", "a V2 checkpoint, but the protocol lacks v2Checkpoint")
    if isinstance(path, V2Checkpoint) and not content_is_v2:
        yield view.found("DL-V2-06", "the name is that of a V2 checkpoint, the content is not")
    if isinstance(path, MultiPartCheckpoint):
        if content_is_v2:
            yield view.found("DL-V2-06", "a multi-part checkpoint with the content of a V2 one")
        if "v2Checkpoint" in features:
            message = "a multi-part checkpoint of a table with the feature v2Checkpoint"
            yield view.found("DL-MP-01", message)
    if isinstance(path, ClassicCheckpoint) and view.scan.counts["sidecar"]:
        message = "a V2 checkpoint with sidecars under a classic name: Trino misses the sidecars"
        yield view.found("DL-V2-09", message)


@CHECKPOINT.checks("DL-V2-03", "DL-V2-04", "DL-V2-05", "DL-SC-01")
def sidecars_hold_the_file_actions(view: CheckpointView) -> Iterator[Found]:
    scan, listing = view.scan, view.log.listing
    tops = set(view.checkpoint.names)
    inside = sum(count for name, count in scan.placed.items() if name in tops)
    if scan.sidecars and inside:
        message = f"{inside} file actions are in the top-level file, the others in sidecars"
        yield view.found("DL-V2-04", message)
    for sidecar in scan.sidecars:
        name = sidecar_name(sidecar.path).name
        entry = listing.sidecars.get(name)
        if entry is None:
            continue  # found as unreadable
        if entry.size != sidecar.size_in_bytes:
            message = f"{name} has {entry.size} bytes, not {sidecar.size_in_bytes}"
            yield view.found("DL-SC-01", message, at_most=None)
        schema = scan.schemas.get(name)
        strange = [] if schema is None else sorted(set(schema.names) - {"add", "remove"})
        if strange:
            message = f"{name} has the columns {strange} beside add and remove"
            yield view.found("DL-V2-03", message, name, at_most=Severity.WARNING)


def _compare_members(view: CheckpointView, compared: Comparison) -> Iterator[Found]:
    live, told = compared.here, compared.there
    differ = live.where(live.fingerprint != told.fingerprint)
    what = "has other members than by the commits"
    yield from _named(view, differ, view.scan.names.of, what, "DL-CP-15")
    lost = np.count_nonzero(live.has_stats > told.has_stats)
    if lost:
        message = f"{lost} files have lost their statistics"
        yield view.found("DL-CP-06", message, at_most=Severity.WARNING)


def _named(
    view: CheckpointView, files: FileColumns, name_of: Callable[[int], str], what: str, rule: str
) -> Iterator[Found]:
    for key in files.key[:_SHOWN].tolist():
        yield view.found(rule, f"{short(name_of(key))} {what}")
    if len(files) > _SHOWN:
        yield view.found(rule, f"and {len(files) - _SHOWN} files more, each of which {what}")


def _first(actions: list[Action], kind: type[_Kind]) -> _Kind | None:
    return next((action for action in actions if isinstance(action, kind)), None)


def _same(one: Action, other: Action) -> bool:
    """Equal but for members that checkpoints do not know, and the order in maps."""
    if isinstance(one, TableProtocol) and isinstance(other, TableProtocol):
        return (
            one.min_reader_version == other.min_reader_version
            and one.min_writer_version == other.min_writer_version
            and set(one.reader_features or ()) == set(other.reader_features or ())
            and set(one.writer_features or ()) == set(other.writer_features or ())
        )
    if isinstance(one, MetaData) and isinstance(other, MetaData):
        return (
            one.id == other.id
            and one.schema_string == other.schema_string
            and one.partition_columns == other.partition_columns
            and one.configuration == other.configuration
            and one.format == other.format
            and (one.name or None) == (other.name or None)
        )
    return encode_action(one) == encode_action(other)


def _txns_expire(history: History) -> bool:
    return "delta.setTransactionRetentionDuration" in history.configuration


def _common(keys: Numbers, others: Numbers) -> int:
    """How many of some keys, each there once, are among the others."""
    return int(np.count_nonzero(np.isin(keys, others))) if len(keys) and len(others) else 0
