"""`verify NAME --version N`: one commit file, in the light of SQL's state before it.

Nothing is replayed and nothing listed: one file is read from the store, and SQL is asked for what
the commit names. So the cost does not grow with the table. What needs the whole log (gaps,
checkpoints, the pointer) is left to `verify NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mirror_assets.conformance.file_columns import key_hash
from mirror_assets.conformance.history import History, physical_columns
from mirror_assets.conformance.live_files import LiveFiles
from mirror_assets.conformance.one_commit import CommitBytes, commit_rules_asked, judge_commit
from mirror_assets.conformance.report import Growth, Report
from mirror_assets.conformance.rulebook import Profile, rulebook
from mirror_assets.delta.features import effective_features
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.files_before import (
    VersionFact,
    read_files_before,
    read_tombstones_before,
    read_version_fact,
)
from mirror_assets.metastore.log_reader import LogReader, TableSummary
from mirror_assets.storage.log_store import LogStore, digest
from mirror_assets.storage.table_files import FileReader

_BYTES: Final = "DL-FILE-02"
_GONE: Final = "DL-FILE-03"
_STATE: Final = "DL-REC-10"


class _Unnamed(NamedTuple):
    """The live files that a commit says nothing about."""

    files: int
    size_bytes: int


def verify_commit(
    metastore: Metastore,
    store: LogStore,
    name: str,
    version: int,
    *,
    profile: Profile = Profile.STRICT,
    read_data: FileReader | None = None,
) -> Report:
    """Check one published commit by the rules, byte by byte, and by what it makes of the state.

    Raises TableNotFoundError, VersionNotFoundError where SQL has no such commit or not the state
    before it, and StorageError if the store cannot be asked.
    """
    fact, reader = read_version_fact(metastore, name, version), LogReader(metastore)
    after, data = reader.summary(name, version), store.read(CommitName(version))
    if data is None:
        findings = [_missing(fact, version)]
    else:
        file = CommitBytes.of(version, data)
        state, others = _state_before(metastore, reader, fact, file)
        findings = judge_commit(file, state, profile=profile, table=name, read_data=read_data)
        if digest(data) != fact.sha256:
            message = "the commit file is not the one that SQL ratified"
            findings.append(_finding(fact, _BYTES, message, version))
        findings += _compared(fact, state, others, after)
    return Report(
        location=store.location.uri,
        profile=profile,
        table=name,
        findings=tuple(findings),
        rules=tuple(sorted({*commit_rules_asked(), _BYTES, _GONE, _STATE})),
        files=int(data is not None),
        versions=1,
        growth=(Growth(version, after.num_files, after.size_bytes),),
        features=effective_features(after.protocol),
    )


def _state_before(
    metastore: Metastore, reader: LogReader, fact: VersionFact, file: CommitBytes
) -> tuple[History, _Unnamed]:
    """The settings in force, and of the files only those that the commit names; and the others."""
    name, version = fact.table.name, file.version
    if version == 0:
        return History(), _Unnamed(0, 0)
    summary = reader.summary(name, version - 1)
    state = History(
        version=version - 1,
        protocol=summary.protocol,
        metadata=summary.metadata,
        domains=reader.domains(name, version - 1),
        physical=dict(physical_columns(summary.metadata)),
    )
    if fact.info_before is not None:
        state.remember_time(fact.info_before)
    live, paths = LiveFiles(), file.paths()
    for add in read_files_before(metastore, fact.table, version, paths):
        live.put(add)
    if "rowTracking" in state.features:  # the one who asks whether a file was there before
        for remove in read_tombstones_before(metastore, fact.table, version, paths):
            state.tombstones[key_hash(remove.path, remove.dv_id)] = remove.deletion_timestamp or 0
    state.live = live
    return state, _Unnamed(summary.num_files - live.count, summary.size_bytes - live.size_bytes)


def _compared(
    fact: VersionFact, state: History, others: _Unnamed, after: TableSummary
) -> Iterator[Finding]:
    """The state before with this commit on top must be SQL's state after it."""
    live = state.live
    if live is None:
        return
    for word, told, right in (
        ("live files", others.files + live.count, after.num_files),
        ("bytes", others.size_bytes + live.size_bytes, after.size_bytes),
    ):
        if told != right:
            message = f"the commit file makes it {told} {word}, SQL says {right}"
            yield _finding(fact, _STATE, message, after.version)
    if (state.protocol, state.metadata) != (after.protocol, after.metadata):
        message = "protocol or metaData after the commit file is not SQL's"
        yield _finding(fact, _STATE, message, after.version)


def _missing(fact: VersionFact, version: int) -> Finding:
    name = fact.table.name
    if version > fact.table.mirrored_version:
        return Finding(
            rule="MA-404",
            severity=Severity.INFO,
            message="the version is not published yet",
            remedy=f"`mirror-assets mirror {name}` publishes it",
            table=name,
            version=version,
        )
    message = "SQL says that the version is published, but its file is missing"
    return _finding(fact, _GONE, message, version)


def _finding(fact: VersionFact, rule: str, message: str, version: int) -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.ERROR,
        message=message,
        remedy=rulebook()[rule].remedy,
        table=fact.table.name,
        version=version,
        file=CommitName(version).name,
    )
