"""Rules of a commit by itself: its bytes, and which actions stand in it together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from mirror_assets.conformance.checks import COMMIT, Found
from mirror_assets.conformance.views import Commit
from mirror_assets.delta.actions import (
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    MetaData,
    RemoveFile,
    Sidecar,
    TableProtocol,
    Txn,
)
from mirror_assets.delta.schema import short
from mirror_assets.findings import Severity

_BYTES: Final = (
    *("DL-CMT-01", "DL-CMT-02", "DL-CMT-03", "DL-CMT-04", "DL-CMT-12", "DL-CMT-13", "DL-CMT-14"),
    *("DL-BYTE-01", "DL-BYTE-02", "DL-DV-01", "DL-DV-08", "DL-ADD-01", "DL-ADD-10", "DL-ADD-11"),
    *("DL-ADD-12", "DL-REM-01", "DL-META-01", "DL-META-03", "DL-META-04", "DL-META-05"),
    *("DL-PROT-01", "DL-TXN-01", "DL-DOM-01", "DL-CDC-01", "DL-STAT-01", "DL-ADD-08"),
)


@COMMIT.checks(*_BYTES, ordinary=False)
def lines_are_actions_of_the_right_types(commit: Commit) -> Iterator[Found]:
    for found in commit.content.found:
        yield commit.found(found.rule, found.message, found.line, at_most=found.at_most)


@COMMIT.checks("DL-CMT-15", ordinary=False)
def a_commit_has_actions(commit: Commit) -> Iterator[Found]:
    if not commit.data.strip():
        message = "the commit is empty: readers take it for a version without changes"
        yield commit.found("DL-CMT-15", message, at_most=Severity.WARNING)
    elif commit.actions and all(isinstance(action, CommitInfo) for action in commit.actions):
        message = "the commit has no action that changes anything"
        yield commit.found("DL-CMT-15", message, at_most=Severity.INFO)


@COMMIT.checks("DL-CMT-05", when=(CheckpointMetadata, Sidecar))
def actions_of_checkpoints_are_not_in_commits(commit: Commit) -> Iterator[Found]:
    for kind, name in ((CheckpointMetadata, "checkpointMetadata"), (Sidecar, "sidecar")):
        for line, _ in commit.each(kind):
            yield commit.found("DL-CMT-05", f"{name} does not belong into a commit", line)


@COMMIT.checks("DL-CMT-06", ordinary=False)
def version_0_has_protocol_and_metadata(commit: Commit) -> Iterator[Found]:
    if commit.version != 0:
        return
    for kind, name in ((TableProtocol, "protocol"), (MetaData, "metaData")):
        if not commit.each(kind):
            yield commit.found("DL-CMT-06", f"version 0 has no {name} action")


@COMMIT.checks("DL-CMT-07", "DL-CMT-08", "DL-CMT-11", ordinary=False)
def single_actions_are_single(commit: Commit) -> Iterator[Found]:
    for kind, name, rule in (
        (MetaData, "metaData", "DL-CMT-07"),
        (TableProtocol, "protocol", "DL-CMT-08"),
        (CommitInfo, "commitInfo", "DL-CMT-11"),
    ):
        actions: list[tuple[int, Any]] = commit.each(kind)
        if len(actions) > 1:
            message = f"the commit has {len(actions)} {name} actions"
            yield commit.found(rule, message, actions[1][0])


@COMMIT.checks("DL-CMT-11", ordinary=False)
def provenance_comes_first(commit: Commit) -> Iterator[Found]:
    infos = commit.each(CommitInfo)
    if not commit.content.lines:
        return
    if not infos:
        message = "the commit has no commitInfo"
        yield commit.found("DL-CMT-11", message, at_most=Severity.INFO)
    elif infos[0][0] != commit.content.lines[0][0]:
        message = "commitInfo is not the first action"
        yield commit.found("DL-CMT-11", message, infos[0][0])


@COMMIT.checks("DL-CMT-09", "DL-CMT-10", when=(Txn, DomainMetadata))
def names_of_applications_and_domains_do_not_repeat(commit: Commit) -> Iterator[Found]:
    apps = [txn.app_id for _, txn in commit.each(Txn)]
    for name in _repeated(apps):
        yield commit.found("DL-CMT-09", f"two txn actions of {short(name)}")
    domains = [action.domain for _, action in commit.each(DomainMetadata)]
    for name in _repeated(domains):
        yield commit.found("DL-CMT-10", f"two domainMetadata actions of {short(name)}")


@COMMIT.checks("DL-REC-02", "DL-REC-03", when=(AddFile, RemoveFile))
def file_actions_of_a_commit_need_no_order(commit: Commit) -> Iterator[Found]:
    added, removed = {add.path: add for add in commit.adds}, commit.removed
    if len(added) != len(commit.adds):
        for path in _repeated(add.path for add in commit.adds):
            yield commit.found("DL-REC-02", f"{short(path)} is added twice")
    if len(removed) != len(commit.removes):
        for path in _repeated(remove.path for remove in commit.removes):
            yield commit.found("DL-REC-02", f"{short(path)} is removed twice")
    for path in added.keys() & removed.keys():
        if added[path].dv_id == removed[path].dv_id:
            message = f"{short(path)} is both added and removed with one deletion vector"
            yield commit.found("DL-REC-03", message)


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
