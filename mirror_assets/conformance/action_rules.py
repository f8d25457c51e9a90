"""Rules of the actions of a commit under the protocol and metaData in force.

What each action must be is known to `delta/` already, where our own commits are validated; that
code stops at the first breach, so it is asked action by action where one is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import orjson

from mirror_assets.conformance.checks import COMMIT, Found, found_as, found_in
from mirror_assets.conformance.views import Commit
from mirror_assets.delta.actions import (
    AddFile,
    CdcFile,
    DomainMetadata,
    MetaData,
    RemoveFile,
    TableProtocol,
    Txn,
)
from mirror_assets.delta.features import FENCE, check_protocol, effective_features
from mirror_assets.delta.file_rules import check_cdc, check_files
from mirror_assets.delta.metadata_rules import check_new_metadata
from mirror_assets.delta.schema import (
    PrimitiveType,
    SchemaPath,
    StructField,
    dotted,
    parse_schema,
    short,
    walk_fields,
)
from mirror_assets.delta.table_properties import interval_ms
from mirror_assets.delta.table_rules import TableRules, is_on, uses_physical_names
from mirror_assets.delta.validation import check_domains, check_txns
from mirror_assets.errors import RuleViolationError
from mirror_assets.findings import Finding, Severity

_EVERYBODYS: Final = TableProtocol(min_reader_version=1, min_writer_version=1)
#: found for the commit as a whole
_TOGETHER: Final = frozenset({"DL-REC-02", "DL-REC-03"})
_DAY_MS: Final = 24 * 60 * 60 * 1000
_FILE_RULES: Final = (
    *("DL-ADD-01", "DL-ADD-02", "DL-ADD-03", "DL-ADD-07", "DL-ADD-08", "DL-ADD-10", "DL-ADD-11"),
    *("DL-ADD-12", "DL-ADD-13", "DL-FILE-16", "DL-STAT-01", "DL-STAT-02", "DL-STAT-03"),
    *("DL-STAT-04", "DL-STAT-05", "DL-DV-01", "DL-DV-02", "DL-DV-04", "DL-DV-06", "DL-SCH-06"),
    *("DL-REM-01", "DL-REM-02", "DL-REM-03", "DL-REM-05", "DL-AO-01"),
)


@COMMIT.checks(
    *("DL-PROT-01", "DL-PROT-02", "DL-PROT-03", "DL-PROT-04", "DL-PROT-05", "DL-PROT-06"),
    *("DL-PROT-07", "DL-PROT-08", "DL-PROT-09", "DL-PROT-10"),
    when=(TableProtocol,),
)
def protocols_are_sound_and_only_grow(commit: Commit) -> Iterator[Found]:
    old = commit.before.protocol
    for line, new in commit.each(TableProtocol):
        for finding in check_protocol(new):
            yield _at(commit, found_as(finding), line)
        lost = effective_features(old) - effective_features(new) if old else frozenset()
        lost -= {FENCE}  # means nothing but that others must not write: it leaves no trace
        if lost:
            dropped = "checkpointProtection" in (new.writer_features or ())
            message = f"the protocol loses the features {sorted(lost)}"
            mild = Severity.INFO if dropped else None
            yield commit.found("DL-PROT-10", message, line, at_most=mild)


@COMMIT.checks(
    *("DL-META-01", "DL-META-02", "DL-META-03", "DL-META-04", "DL-META-05", "DL-META-07"),
    *("DL-META-08", "DL-META-09", "DL-META-10", "DL-SCH-01", "DL-SCH-02", "DL-SCH-03"),
    *("DL-SCH-04", "DL-SCH-05", "DL-SCH-07", "DL-SCH-08", "DL-SCH-09", "DL-CM-01", "DL-CM-02"),
    *("DL-CM-03", "DL-TW-01", "DL-PROT-09", "DL-V2-01"),
    when=(MetaData,),
)
def metadata_is_sound(commit: Commit) -> Iterator[Found]:
    protocol = commit.during.protocol or _EVERYBODYS
    for line, new in commit.each(MetaData):
        if not new.schema_string:
            yield commit.found("DL-META-01", "metaData has no schemaString", line)
            continue
        try:
            findings = check_new_metadata(new, commit.before.metadata, protocol)
        except RuleViolationError as exc:
            yield _at(commit, found_in(exc), line)
            continue
        for finding in findings:
            yield _at(commit, found_as(finding), line)


@COMMIT.checks("DL-CLN-11", when=(MetaData,))
def the_log_is_kept_as_long_as_tombstones(commit: Commit) -> Iterator[Found]:
    for line, new in commit.each(MetaData):
        properties = new.configuration
        log = interval_ms(properties.get("delta.logRetentionDuration", "interval 30 days"))
        files = interval_ms(properties.get("delta.deletedFileRetentionDuration", "interval 7 days"))
        if log is not None and files is not None and log < files:
            message = f"the log is kept {log // _DAY_MS} days, tombstones {files // _DAY_MS}"
            yield commit.found("DL-CLN-11", message, line)


@COMMIT.checks(*_FILE_RULES, when=(AddFile, RemoveFile))
def file_actions_are_what_the_table_demands(commit: Commit) -> Iterator[Found]:
    if commit.during.metadata is None or not (commit.adds or commit.removes):
        return
    rules = commit.during.rules()
    try:
        findings = check_files(commit.adds, commit.removes, rules)
    except RuleViolationError:
        yield from _one_by_one(commit, rules)
        return
    for finding in findings:
        yield _at(commit, found_as(finding))


@COMMIT.checks("DL-CDC-01", "DL-CDC-02", "DL-CDC-04", "DL-CDF-01", "DL-FILE-16", when=(CdcFile,))
def change_files_are_sound(commit: Commit) -> Iterator[Found]:
    if commit.during.metadata is None:
        return
    rules = commit.during.rules()
    for line, cdc in commit.each(CdcFile):
        yield from _asked(commit, line, partial(check_cdc, [cdc], rules))


@COMMIT.checks("DL-TXN-01", when=(Txn,))
def application_versions_are_numbers(commit: Commit) -> Iterator[Found]:
    for line, txn in commit.each(Txn):
        yield from _asked(commit, line, partial(check_txns, [txn]))


@COMMIT.checks("DL-DOM-01", "DL-DOM-02", "DL-DOM-03", "DL-CLU-01", when=(DomainMetadata,))
def domains_are_sound(commit: Commit) -> Iterator[Found]:
    rules = commit.during.rules()
    for line, domain in commit.each(DomainMetadata):
        yield from _asked(commit, line, partial(check_domains, [domain], rules))


@COMMIT.checks("DL-DOM-04", when=(DomainMetadata,))
def removed_domains_keep_their_configuration(commit: Commit) -> Iterator[Found]:
    for line, action in commit.each(DomainMetadata):
        before = commit.before.domains.get(action.domain)
        if action.removed and before and before.configuration != action.configuration:
            message = f"the tombstone of {action.domain!r} has another configuration than it had"
            yield commit.found("DL-DOM-04", message, line, at_most=Severity.INFO)


@COMMIT.checks("DL-STAT-07", when=(AddFile,))
def partition_columns_have_no_statistics(commit: Commit) -> Iterator[Found]:
    names = commit.during.rules().partition_names if commit.during.metadata else frozenset()
    quoted = [f'"{name}"' for name in names]
    for line, add in commit.each(AddFile):
        for name in quoted:
            # most files name none: no need to decode
            if name in (add.stats or "") and not names.isdisjoint(_minima(add)):
                yield commit.found("DL-STAT-07", "statistics of a partition column", line)
                return


def _minima(add: AddFile) -> dict[str, object]:
    try:
        bounds = orjson.loads(add.stats or "{}").get("minValues")
    except (orjson.JSONDecodeError, AttributeError):
        return {}
    return bounds if isinstance(bounds, dict) else {}


@COMMIT.checks("DL-ICE-01", when=(MetaData,))
def iceberg_compatibility_has_what_it_needs(commit: Commit) -> Iterator[Found]:
    for line, new in commit.each(MetaData):
        on = [v for v in (1, 2) if is_on(new.configuration, f"delta.enableIcebergCompatV{v}")]
        if not on:
            continue
        features = commit.during.features
        breaches = {
            "both versions are on": len(on) > 1,
            "column mapping is off": not uses_physical_names(new.configuration),
            "V1 does not go with deletionVectors": on == [1] and "deletionVectors" in features,
            "V2 does not go with new deletion vectors": on == [2]
            and is_on(new.configuration, "delta.enableDeletionVectors"),
        }
        for message, is_so in breaches.items():
            if is_so:
                yield commit.found("DL-ICE-01", f"Iceberg compatibility: {message}", line)


@COMMIT.checks("DL-TW-02", when=(MetaData,))
def recorded_type_changes_end_at_the_type(commit: Commit) -> Iterator[Found]:
    for line, new in commit.each(MetaData):
        for path, member in _fields(new):
            changes = member.metadata.get("delta.typeChanges")
            last = changes[-1] if isinstance(changes, list) and changes else None
            if not isinstance(last, dict) or "fieldPath" in last:
                continue
            if isinstance(member.type, PrimitiveType) and last.get("toType") != member.type.name:
                told = short(last.get("toType"))
                message = f"{dotted(path)} is {member.type.name}, its last change was to {told}"
                yield commit.found("DL-TW-02", message, line)


def _fields(metadata: MetaData) -> Iterator[tuple[SchemaPath, StructField]]:
    try:
        yield from walk_fields(parse_schema(metadata.schema_string))
    except RuleViolationError:
        return


def _one_by_one(commit: Commit, rules: TableRules) -> Iterator[Found]:
    for line, add in commit.each(AddFile):
        leaving = [commit.removed[add.path]] if add.path in commit.removed else []
        yield from _asked(commit, line, partial(check_files, [add], leaving, rules))
    for line, remove in commit.each(RemoveFile):
        yield from _asked(commit, line, partial(check_files, [], [remove], rules))


def _asked(
    commit: Commit, line: int, question: Callable[[], list[Finding] | None]
) -> Iterator[Found]:
    try:
        findings = question() or []
    except RuleViolationError as exc:
        if exc.rule not in _TOGETHER:
            yield _at(commit, found_in(exc), line)
        return
    for finding in findings:
        yield _at(commit, found_as(finding), line)


def _at(commit: Commit, found: Found, line: int | None = None) -> Found:
    return commit.found(found.rule, found.message, line, at_most=found.at_most)
