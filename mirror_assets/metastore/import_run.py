"""One run of an import: the log is read once, written on the way, and compared at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sqlalchemy import select

from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import MalformedActionError, TableStateError
from mirror_assets.findings import Severity
from mirror_assets.metastore import tables
from mirror_assets.metastore.import_audit import Parity, compare_rows, compare_totals
from mirror_assets.metastore.import_decoder import Decoder
from mirror_assets.metastore.import_evidence import InForceAt, LogEvidence
from mirror_assets.metastore.import_parts import BadFileError, CommitFacts
from mirror_assets.metastore.import_references import References
from mirror_assets.metastore.import_rules import LogRules
from mirror_assets.metastore.import_source import LogSource, read_ahead
from mirror_assets.metastore.postgres import PostgresDialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_assets.delta.log_paths import Checkpoint, LogEntry, LogListing
    from mirror_assets.metastore.database import Metastore
    from mirror_assets.metastore.import_findings import FindingLog
    from mirror_assets.metastore.import_parts import Part
    from mirror_assets.metastore.import_plan import ImportPlan, Start
    from mirror_assets.metastore.import_references import Resolved
    from mirror_assets.metastore.import_store import ImportStore
    from mirror_assets.metastore.log_reader import TableRecord
    from mirror_assets.metastore.relocation import Relocation


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProgress:
    """How far an import has come."""

    table: str
    phase: Literal["read", "prove"]
    version: int
    head_version: int
    commits: int
    total_commits: int
    bytes: int
    total_bytes: int


@dataclass(slots=True, kw_only=True)
class Counts:
    """What was read."""

    commits: int = 0
    adds: int = 0
    removes: int = 0
    exact_lines: int = 0
    rewritten_lines: int = 0
    bytes: int = 0

    def add(self, facts: CommitFacts) -> None:
        self.commits += 1
        self.adds += facts.counts.get(tables.dl_add_files.name, 0)
        self.removes += facts.counts.get(tables.dl_remove_files.name, 0)
        self.exact_lines += facts.exact_lines
        self.rewritten_lines += facts.rewritten_lines
        self.bytes += facts.byte_length


@dataclass(slots=True, kw_only=True)
class ImportRun:
    """Reads a log into a store, or into nothing in a dry run."""

    metastore: Metastore
    source: LogSource
    listing: LogListing
    plan: ImportPlan
    start: Start
    #: the table as this run found it: versions up to its head were imported by an earlier one
    record: TableRecord
    store: ImportStore | None
    relocation: Relocation | None
    findings: FindingLog
    progress: Callable[[ImportProgress], None] | None
    #: whether a fenced log may be taken from the deployment that fenced it
    takes_over: bool = False
    counts: Counts = field(default_factory=Counts)
    _references: References = field(default_factory=References)
    #: at the checkpoint that the state is compared with
    _in_force: InForceAt = (None, None)

    def read_log(self) -> None:
        """Decode the log, judge it, and write what is not yet in SQL.

        Raises ImportRefusedError as soon as the log cannot be understood; TableStateError if it
        has changed since an earlier run.
        """
        rules = LogRules(self.findings)
        decoder = self._decoder()
        try:
            self._read_base(decoder, rules)
            self._read_commits(decoder, rules)
        except BadFileError as exc:
            self.findings.add(exc.finding)
        rules.judge_head(self.plan.head)
        if not self.takes_over:
            rules.judge_owner(self.plan.head)
        self.findings.refuse()
        if self.store is not None:
            self.store.close()

    def prove(self) -> tuple[Parity, Resolved]:
        """Compare SQL, checkpoint and checksums with the log; differences become findings."""
        self._tell("prove", self.plan.head)
        resolved = self._references.resolve()
        self._note_oddities(resolved)
        file_rows = versions = 0
        if self.store is not None:
            record, has_base = self.store.record, self.start.checkpoint is not None
            given = (self.metastore, record, resolved, self.findings)
            file_rows = compare_rows(*given, has_base=has_base)
            versions = compare_totals(*given)
        evidence = LogEvidence(source=self.source, resolved=resolved, findings=self.findings)
        checkpoint = self._other_checkpoint()
        if checkpoint is not None:
            relocated = self._decoder().relocated
            evidence.compare_checkpoint(checkpoint, self._in_force, relocated)
        span = (self.start.floor, self.plan.head)
        checksums = evidence.compare_checksums(self.listing.checksums, *span)
        parity = Parity(
            file_rows=file_rows,
            versions=versions,
            checkpoint_version=None if checkpoint is None else checkpoint.version,
            checksums=checksums,
        )
        return parity, resolved

    def _decoder(self) -> Decoder:
        copies_text = isinstance(self.metastore.dialect, PostgresDialect) and self.store is not None
        return Decoder(
            self.source,
            self.record.table_id,
            copies_text=copies_text,
            relocation=self.relocation,
        )

    def _read_base(self, decoder: Decoder, rules: LogRules) -> None:
        checkpoint = self.start.checkpoint
        if checkpoint is None:
            return
        file = checkpoint.names[0]
        try:
            told = decoder.checkpoint(checkpoint, self._take)
        except MalformedActionError as exc:
            rule = exc.rule or "DL-FILE-13"
            self.findings.note(
                rule, Severity.ERROR, exc.message, version=checkpoint.version, file=file
            )
            self.findings.refuse()
            return
        rules.see_base(checkpoint.version, told, file)
        self.findings.refuse()

    def _read_commits(self, decoder: Decoder, rules: LogRules) -> None:
        floor, has_base = self.start.floor, self.start.checkpoint is not None
        waits_for_floor = floor not in self.listing.commits
        for entry, data in read_ahead(self.source, self.plan.commits(self.listing, self.start)):
            version = _version_of(entry)
            if waits_for_floor and version > floor:
                waits_for_floor = False
                self._finish_floor(rules)
            is_history = has_base and version <= floor
            facts = decoder.commit(entry, version, data, self._take, is_history=is_history)
            del data  # else it would be held while the next file is fetched
            if is_history:
                rules.see_history(facts)
            else:
                rules.see_commit(facts, is_floor=version == floor)
            self.counts.add(facts)
            self._finish(facts, rules)
        if waits_for_floor:
            self._finish_floor(rules)

    def _finish_floor(self, rules: LogRules) -> None:
        """The floor has no commit file: its version is what the checkpoint tells."""
        assert self.start.checkpoint is not None  # noqa: S101 - else commit 0 is the floor
        entry = self.start.checkpoint.files[0]
        facts = CommitFacts(version=self.start.floor, file=entry.name, mtime_ms=entry.mtime_ms)
        self._finish(facts, rules)

    def _take(self, part: Part) -> None:
        files = part.all_files()
        for refs in files:
            self._references.add(part.version, refs)
        if self.store is None:
            return
        if part.version <= self.record.head_version:
            self.store.remember(files)
        else:
            self.store.take(part, files)

    def _finish(self, facts: CommitFacts, rules: LogRules) -> None:
        checkpoint = self._other_checkpoint()
        if checkpoint is not None and checkpoint.version == facts.version:
            self._in_force = (rules.protocol, rules.metadata)
        if self.store is not None:
            if facts.version <= self.record.head_version:
                self._require_same(facts)
            else:
                self.store.finish(facts)
        self._tell("read", facts.version)

    def _require_same(self, facts: CommitFacts) -> None:
        """A version that an earlier run has imported must still be the same file."""
        versions = tables.dl_table_versions
        query = select(versions.c.sha256).where(
            versions.c.table_id == self.record.table_id, versions.c.version == facts.version
        )
        with self.metastore.read() as connection:
            found = connection.execute(query).scalar()
        if found != facts.sha256:
            message = f"{facts.file} is not what an earlier, unfinished import has read"
            remedy = f"`mirror-assets drop {self.record.name} --apply`, then import it anew"
            raise TableStateError(
                message, table=self.record.name, version=facts.version, remedy=remedy
            )

    def _other_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint up to the head, unless the import begins there."""
        newest = self.listing.newest_checkpoint(self.plan.head)
        if newest is None or newest.version < self.start.floor:
            return None
        is_base = self.start.checkpoint is not None and newest.version == self.start.floor
        return None if is_base else newest

    def _note_oddities(self, resolved: Resolved) -> None:
        if unmatched := resolved.num_unmatched():
            message = f"removes of files that were not in the table: {unmatched}"
            self.findings.note("DL-REM-06", Severity.INFO, message)
        tolerant = self._references.resolve_tolerantly()
        if tolerant is not None and (
            (tolerant.live_at(self.plan.head) != resolved.live_at(self.plan.head)).any()
        ):
            message = "paths that Delta Spark takes for one file, and we for several"
            remedy = "spell the paths of a file alike: `/x`, `file:/x` and `file:///x` are one"
            self.findings.note("DL-REC-09", Severity.WARNING, message, remedy=remedy)

    def _tell(self, phase: Literal["read", "prove"], version: int) -> None:
        if self.progress is None:
            return
        entries = self.plan.commits(self.listing, self.start)
        self.progress(
            ImportProgress(
                table=self.record.name,
                phase=phase,
                version=version,
                head_version=self.plan.head,
                commits=self.counts.commits,
                total_commits=len(entries),
                bytes=self.counts.bytes,
                total_bytes=sum(entry.size for entry in entries),
            )
        )


def _version_of(entry: LogEntry) -> int:
    assert isinstance(entry.path, CommitName)  # noqa: S101 - the listing sorts by kind
    return entry.path.version
