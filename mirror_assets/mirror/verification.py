"""`verify NAME`: a table's log by the rules, byte by byte, and state by state against SQL.

The validator reads the log once. While it does, the state that the log tells is compared with
SQL's: the totals at every checkpoint and at sampled versions, each live file at the newest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from mirror_assets.conformance.checks import Found
from mirror_assets.conformance.history import History
from mirror_assets.conformance.live_files import LiveFiles
from mirror_assets.conformance.report import Report
from mirror_assets.conformance.rulebook import Profile, rulebook
from mirror_assets.conformance.validator import verify_log
from mirror_assets.delta.log_paths import LogListing
from mirror_assets.delta.schema import short
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_facts import LogFacts, read_facts
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.inspection import missing_versions
from mirror_assets.mirror.log_digests import differing
from mirror_assets.storage.log_store import LogStore
from mirror_assets.storage.table_files import FileReader

#: versions whose totals are compared, beside those of checkpoints
_SAMPLES: Final = 20
_SHOWN: Final = 10
_BYTES: Final = "DL-FILE-02"
_STATE: Final = "DL-REC-10"


def verify_table(
    metastore: Metastore,
    store: LogStore,
    name: str,
    *,
    profile: Profile = Profile.STRICT,
    read_data: FileReader | None = None,
) -> Report:
    """Check the log of a registered table, and compare it with SQL.

    Raises TableNotFoundError, TableStateError before an import has reached any state, and
    StorageError if the log cannot be read.
    """
    facts, listing = read_facts(metastore, name), store.list()
    compared = _Comparison(LogReader(metastore), facts, _chosen(facts, listing))
    report = verify_log(
        store.source, profile=profile, table=name, read_data=read_data, watch=compared.at
    )
    findings = [*_differing_bytes(store, facts, listing), *_missing(facts, listing)]
    findings += _unpublished(facts)
    return report.with_findings(findings, (_BYTES, _STATE, "DL-CAT-04"))


@dataclass
class _Comparison:
    """SQL's state beside that of the log, at chosen versions."""

    reader: LogReader
    facts: LogFacts
    versions: set[int]
    compared: list[int] = field(default_factory=list)

    def at(self, version: int, history: History) -> Iterator[Found]:
        if version not in self.versions or history.live is None:
            return
        self.compared.append(version)
        name, live = self.facts.table.name, history.live
        summary = self.reader.summary(name, version)
        for word, told, known in (
            ("live files", live.count, summary.num_files),
            ("bytes", live.size_bytes, summary.size_bytes),
        ):
            if told != known:
                message = f"the log tells of {told} {word}, SQL of {known}"
                yield Found(rule=_STATE, message=message, version=version)
        if (history.protocol, history.metadata) != (summary.protocol, summary.metadata):
            message = "protocol or metaData of the log is not SQL's"
            yield Found(rule=_STATE, message=message, version=version)
        if version == max(self.versions):
            yield from self._files(version, live)

    def _files(self, version: int, live: LiveFiles) -> Iterator[Found]:
        """Each live file of the newest version; a few numbers per file are held."""
        known = LiveFiles.of(self.reader.live_files(self.facts.table.name, version))
        compared = known.files().against(live.files())
        differ = compared.here.where(compared.here.fingerprint != compared.there.fingerprint)
        for files, names, what in (
            (compared.only_here, known, "is live in SQL only"),
            (compared.only_there, live, "is live in the log only"),
            (differ, known, "has other members in SQL"),
        ):
            for key in files.key[:_SHOWN].tolist():
                message = f"{short(names.path_of(key))} {what}"
                yield Found(rule=_STATE, message=message, version=version)


def _chosen(facts: LogFacts, listing: LogListing) -> set[int]:
    """Every checkpoint, some versions between, and the newest that is published."""
    newest = facts.table.mirrored_version
    known = [v for v in listing.commits if facts.table.floor_version <= v <= newest]
    step = max(1, len(known) // _SAMPLES)
    inside = {v for v in listing.checkpoints if facts.table.floor_version <= v <= newest}
    return {*known[::step], *known[-1:], *inside}


def _differing_bytes(store: LogStore, facts: LogFacts, listing: LogListing) -> Iterator[Finding]:
    commits = facts.commits
    files = [(entry, commits[v]) for v, entry in listing.commits.items() if v in commits]
    for entry, commit in differing(store, files):
        message = "the commit file is not the one that SQL ratified"
        yield _finding(facts, _BYTES, message, commit.version, entry.name)
    for version, entry in listing.commits.items():
        if version > facts.table.head_version:
            message = "SQL does not know this version: the log is ahead"
            yield _finding(facts, "DL-CAT-04", message, version, entry.name)


def _missing(facts: LogFacts, listing: LogListing) -> Iterator[Finding]:
    bases = {version: found[0] for version, found in listing.checkpoints.items()}
    for version in missing_versions(listing, facts, bases):
        message = "SQL says that the version is published, but its file is missing"
        yield _finding(facts, "DL-FILE-03", message, version)


def _unpublished(facts: LogFacts) -> Iterator[Finding]:
    behind = facts.table.head_version - facts.table.mirrored_version
    if behind:
        name = facts.table.name
        yield Finding(
            rule="MA-404",
            severity=Severity.INFO,
            message=f"{behind} versions are not published yet",
            remedy=f"`mirror-assets mirror {name}` publishes them",
            table=name,
            version=facts.table.mirrored_version + 1,
        )


def _finding(
    facts: LogFacts, rule: str, message: str, version: int, file: str | None = None
) -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.ERROR,
        message=message,
        remedy=rulebook()[rule].remedy,
        table=facts.table.name,
        version=version,
        file=file,
    )
