"""The checks of one log, by name: what Dagster shows as asset checks.

Each is a function of the log and SQL that returns findings; an empty list is a pass. The names
stay, what stands behind them may grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from mirror_assets.conformance.report import Report as VerifyReport
from mirror_assets.delta.log_paths import LogListing
from mirror_assets.errors import MirrorAssetsError, TableUnreadableError
from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader, TableRecord, TableSummary
from mirror_assets.mirror.reconciler import Mode, Report, reconcile
from mirror_assets.mirror.row_models import judge_pending, judge_state
from mirror_assets.mirror.verification import verify_table
from mirror_assets.storage.log_store import LogStore

#: differences between SQL and a reader that are named; the rest is counted
_NAMED: Final = 20
_CHECKPOINT_RULES: Final = (*("DL-CP-", "DL-V2", "DL-MP", "DL-LCP", "DL-FILE-06", "DL-FILE-13"),)
_BYTES_RULES: Final = ("DL-FILE-02",)
_GAP_RULES: Final = ("DL-FILE-03", "DL-CAT-04", "MA-4")
_STATE_RULES: Final = ("DL-REC-10",)

Facts = dict[str, int | str]


@dataclass(kw_only=True)
class CheckedLog:
    """What the checks work with; what several of them need is looked at once."""

    metastore: Metastore
    store: LogStore
    table: TableRecord
    #: how deltalake reaches the store
    reader_options: dict[str, str] = field(default_factory=dict)

    @cached_property
    def summary(self) -> TableSummary:
        """What SQL says of the published version."""
        return LogReader(self.metastore).summary(self.table.name, self.table.mirrored_version)

    @cached_property
    def listing(self) -> LogListing:
        """The files of the log."""
        return self.store.list()

    @cached_property
    def verified(self) -> VerifyReport:
        """The whole log by the rules of the protocol."""
        return verify_table(self.metastore, self.store, self.table.name)

    @cached_property
    def compared(self) -> Report:
        """The whole log compared with SQL."""
        return reconcile(self.metastore, self.store, self.table.name, Mode.FULL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The outcome of one check."""

    findings: list[Finding]
    facts: Facts = field(default_factory=dict)


def check_log(log: CheckedLog, names: Iterable[str] | None = None) -> dict[str, Checked]:
    """Run the checks of these names, all by default; one that cannot be run is a finding."""
    wanted = list(CHECKS if names is None else names)
    return {name: _run(CHECKS[name], log) for name in wanted}


def open_log(
    metastore: Metastore, store: LogStore, name: str, reader_options: dict[str, str] | None = None
) -> CheckedLog:
    """A log ready to be checked; TableNotFoundError for an unknown name."""
    table = LogReader(metastore).table(name)
    return CheckedLog(
        metastore=metastore, store=store, table=table, reader_options=reader_options or {}
    )


def _run(check: Callable[[CheckedLog], Checked], log: CheckedLog) -> Checked:
    if log.table.mirrored_version < log.table.first_version:
        message = "nothing is published yet"
        findings = [_finding(log, "MA-404", message, severity=Severity.INFO)]
        if check is _state_matches_sql:
            findings += judge_pending(log.metastore, log.table.name, log.table.head_version)
        return Checked(findings=findings)
    try:
        return check(log)
    except MirrorAssetsError as error:
        finding = _finding(log, error.code, error.message, remedy=error.remedy)
        return Checked(findings=[finding])


def _protocol(log: CheckedLog) -> Checked:
    """Every rule of the Delta protocol that the log itself can tell holds."""
    others = (*_CHECKPOINT_RULES, *_BYTES_RULES, *_GAP_RULES, *_STATE_RULES)
    findings = [f for f in log.verified.findings if not f.rule.startswith(others)]
    facts: Facts = {
        "min_reader_version": log.summary.protocol.min_reader_version,
        "min_writer_version": log.summary.protocol.min_writer_version,
        "rules_asked": len(log.verified.rules),
        "files_read": log.verified.files,
    }
    return Checked(findings=findings, facts=facts)


def _gapless(log: CheckedLog) -> Checked:
    """Every published version has its commit file, none is beyond SQL's head, names are right."""
    others = (*_CHECKPOINT_RULES, *_BYTES_RULES)
    findings = [f for f in log.compared.findings if not f.rule.startswith(others)]
    commits = log.listing.commits
    facts: Facts = {"commit_files": len(commits), "mirrored_version": log.table.mirrored_version}
    return Checked(findings=findings, facts=facts)


def _bytes_match_sql(log: CheckedLog) -> Checked:
    """Every retained commit file has the digest that was frozen in SQL."""
    findings = [f for f in log.compared.findings if f.rule.startswith(_BYTES_RULES)]
    return Checked(findings=findings, facts={"commit_files": len(log.listing.commits)})


def _state_matches_sql(log: CheckedLog) -> Checked:
    """An independent replay gives SQL's live files; SQL's rows are sound, to its head."""
    version = log.table.mirrored_version
    findings = judge_state(log.metastore, log.table.name, version)
    findings += judge_pending(log.metastore, log.table.name, log.table.head_version)
    findings += [f for f in log.verified.findings if f.rule.startswith(_STATE_RULES)]
    seen = _listed_files(_reader(log, version))
    live = LogReader(log.metastore).live_files(log.table.name, version)
    expected: dict[str, int] = {}
    for add in live:
        expected[add.path] = add.size
    differences = [
        *(
            f"{path} is live in SQL, and not for deltalake"
            for path in expected.keys() - seen.keys()
        ),
        *(
            f"{path} is live for deltalake, and not in SQL"
            for path in seen.keys() - expected.keys()
        ),
        *(
            f"{path} has {expected[path]} bytes in SQL, {seen[path]} for deltalake"
            for path in expected.keys() & seen.keys()
            if expected[path] != seen[path]
        ),
    ]
    remedy = f"`mirror-assets diff {log.table.name}` shows where they part"
    findings += [
        _finding(log, "DL-REC-01", message, version=version, remedy=remedy)
        for message in sorted(differences)[:_NAMED]
    ]
    if len(differences) > _NAMED:
        message = f"{len(differences) - _NAMED} more files differ"
        findings.append(_finding(log, "DL-REC-01", message, version=version))
    facts: Facts = {"live_files": len(expected), "live_bytes": sum(expected.values())}
    return Checked(findings=findings, facts=facts)


def _checkpoint_matches_replay(log: CheckedLog) -> Checked:
    """The checkpoint that readers open holds the state that SQL tells of its version."""
    told = (*log.compared.findings, *log.verified.findings)
    findings = [f for f in told if f.rule.startswith(_CHECKPOINT_RULES)]
    checkpoints = list(log.listing.checkpoints)
    newest = {"newest_checkpoint": checkpoints[-1]} if checkpoints else {}
    return Checked(findings=findings, facts={"checkpoints": len(checkpoints), **newest})


def _readable(log: CheckedLog) -> Checked:
    """A reader that knows nothing of us opens the table at the published version."""
    table = _reader(log, None)
    version, expected = table.version(), log.table.mirrored_version
    findings = []
    newer = LogReader(log.metastore).table(log.table.name).mirrored_version
    if not expected <= version <= newer:
        message = f"deltalake reads version {version}, published is {expected}"
        findings.append(_finding(log, "DL-REC-01", message, version=version))
    columns = [f.name for f in table.schema().fields]
    return Checked(findings=findings, facts={"version": version, "columns": len(columns)})


#: in the order in which they are shown
CHECKS: Final[dict[str, Callable[[CheckedLog], Checked]]] = {
    "protocol": _protocol,
    "gapless": _gapless,
    "bytes_match_sql": _bytes_match_sql,
    "state_matches_sql": _state_matches_sql,
    "checkpoint_matches_replay": _checkpoint_matches_replay,
    "readable": _readable,
}


def describe(name: str) -> str:
    """What a check holds true."""
    return (CHECKS[name].__doc__ or "").strip()


def _reader(log: CheckedLog, version: int | None) -> DeltaTable:
    location = log.table.location
    place = location.removeprefix("file://") if location.startswith("file://") else location
    try:
        return DeltaTable(place, version=version, storage_options=log.reader_options or None)
    except (DeltaError, OSError, ValueError) as error:
        raise TableUnreadableError(f"deltalake cannot open the table: {error}") from error


def _listed_files(table: DeltaTable) -> dict[str, int]:
    listed = pa.table(table.get_add_actions())
    paths, sizes = listed["path"].to_pylist(), listed["size_bytes"].to_pylist()
    return dict(zip(paths, sizes, strict=True))


def _finding(
    log: CheckedLog,
    rule: str,
    message: str,
    *,
    severity: Severity = Severity.ERROR,
    version: int | None = None,
    remedy: str = "",
) -> Finding:
    return Finding(
        rule=rule,
        severity=severity,
        message=message,
        remedy=remedy,
        table=log.table.name,
        version=version,
    )
