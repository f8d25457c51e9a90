"""Rules of log compactions: what they say must be what the commits they stand for say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mirror_assets.conformance.checks import COMPACTION, Found
from mirror_assets.conformance.live_files import live_file
from mirror_assets.delta.actions import (
    ACTION_NAMES,
    Action,
    AddFile,
    CdcFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    MetaData,
    RemoveFile,
    Sidecar,
    TableProtocol,
    Txn,
)
from mirror_assets.delta.commit_file import decode, encode_action
from mirror_assets.delta.log_paths import LogEntry
from mirror_assets.delta.schema import short
from mirror_assets.errors import MalformedActionError
from mirror_assets.findings import Severity

Key = tuple[str, ...]
#: the kind of an action, and a hash of what a compaction must repeat of it
Said = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class Range:
    """The newest action of each key over some commits."""

    entry: LogEntry
    first: int
    last: int
    newest: dict[Key, Said] = field(default_factory=dict)
    data: bytes = b""
    #: commits of the range that were there
    seen: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all of them were."""
        return self.seen == self.last - self.first + 1

    def add(self, actions: list[Action]) -> None:
        """Take one commit in; adds after removes, since order inside says nothing."""
        ordered = sorted(actions, key=lambda action: isinstance(action, AddFile))
        for action in ordered:
            key = _key(action)
            if key is not None:
                self.newest[key] = _said(action)

    def found(self, rule: str, message: str, at_most: Severity | None = None) -> Found:
        """A breach in the compaction."""
        name = self.entry.name
        return Found(rule=rule, message=message, version=self.last, file=name, at_most=at_most)


@COMPACTION.checks("DL-CMPT-01", "DL-CMPT-02")
def a_compaction_says_what_its_commits_say(span: Range) -> Iterator[Found]:
    try:
        actions = decode(span.data).actions
    except MalformedActionError as exc:
        yield span.found("DL-CMPT-01", exc.message)
        return
    for action in actions:
        if isinstance(action, CommitInfo | CheckpointMetadata | Sidecar):
            name = ACTION_NAMES[type(action)]
            yield span.found("DL-CMPT-02", f"{name} does not belong into a compaction")
        elif isinstance(action, CdcFile):
            message = "cdc does not belong into a compaction"
            yield span.found("DL-CMPT-02", message, Severity.WARNING)
    if not span.is_whole:
        return
    told: dict[Key, set[Said]] = {}
    for action in actions:
        key = _key(action)
        if key is not None:
            told.setdefault(key, set()).add(_said(action))
    yield from _compare(span, told)


def _compare(span: Range, told: dict[Key, set[Said]]) -> Iterator[Found]:
    for key, said in span.newest.items():
        found, (kind, _) = told.get(key), said
        if found is None:
            yield span.found("DL-CMPT-01", f"{kind} of {_shown(key)} is missing")
        elif (kinds := {name for name, _ in found}) != {kind}:
            message = f"{_shown(key)} is {' and '.join(sorted(kinds))}, by the commits {kind}"
            yield span.found("DL-CMPT-01", message)
        elif found != {said}:
            message = f"{kind} of {_shown(key)} is not the newest of the commits"
            yield span.found("DL-CMPT-01", message)
    for key in told.keys() - span.newest.keys():
        yield span.found("DL-CMPT-01", f"{_shown(key)} is in none of its commits")


def _key(action: Action) -> Key | None:
    match action:
        case AddFile() | RemoveFile():
            return ("file", action.path, action.dv_id)
        case Txn():
            return ("txn", action.app_id)
        case DomainMetadata():
            return ("domain", action.domain)
        case MetaData() | TableProtocol():
            return (ACTION_NAMES[type(action)],)
        case _:
            return None


def _said(action: Action) -> Said:
    """Statistics may be left out, and dataChange may be false: nothing is new."""
    match action:
        case AddFile():
            content = live_file(action, None).fingerprint
        case RemoveFile():
            content = action.deletion_timestamp or 0
        case _:
            content = hash(encode_action(action))
    return ACTION_NAMES[type(action)], content


def _shown(key: Key) -> str:
    words: Any = key[0] if len(key) == 1 else f"{key[0]} {short(key[1])}"
    return str(words)
