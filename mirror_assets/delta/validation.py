"""Validation of a commit before it is written: what the commit itself can tell.

`validate_commit` sees the actions and the protocol and metaData in force before them. What needs
the table state (a remove of an unknown file, row ids) is for the metastore, what needs the files
for the conformance readers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from mirror_assets.delta.actions import (
    ACTION_NAMES,
    INT64_MAX,
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
    UnknownAction,
    by_kind,
)
from mirror_assets.delta.conflicts import ROW_TRACKING_DOMAIN
from mirror_assets.delta.file_rules import check_cdc, check_files
from mirror_assets.delta.metadata_rules import (
    check_new_metadata,
    check_new_protocol,
    check_writable,
)
from mirror_assets.delta.path_rules import check_text
from mirror_assets.delta.schema import short
from mirror_assets.delta.table_rules import TableRules, rules_of
from mirror_assets.errors import PermanentError, RuleViolationError
from mirror_assets.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CLUSTERING_DOMAIN: Final = "delta.clustering"

_MEMBERS: Final[dict[type[Any], frozenset[str]]] = {
    kind: frozenset(member.encode_name for member in msgspec.structs.fields(kind))
    for kind in ACTION_NAMES
    if kind is not CommitInfo
}
_EXTRA: Final = attrgetter("extra")
_AT_MOST_ONE: Final[dict[type[Any], str]] = {
    MetaData: "DL-CMT-07",
    TableProtocol: "DL-CMT-08",
    CommitInfo: "DL-CMT-11",
}
_Groups = dict[type[Any], list[Any]]


def validate_commit(
    actions: Sequence[Action],
    *,
    version: int,
    protocol: TableProtocol | None,
    metadata: MetaData | None,
) -> list[Finding]:
    """Check a commit that is about to be written as `version`.

    `protocol` and `metadata` are those in force before it, None for version 0. Returns what is
    merely odd. Raises RuleViolationError for the first rule that is broken, and
    UnsupportedTableError if the protocol, old or new, asks for more than we can write.
    """
    try:
        findings = _validate(actions, version, protocol, metadata)
    except PermanentError as exc:
        exc.at(version=version)
        raise
    return [replace(finding, version=version) for finding in findings]


def _validate(
    actions: Sequence[Action],
    version: int,
    protocol: TableProtocol | None,
    metadata: MetaData | None,
) -> list[Finding]:
    groups = _grouped(actions)
    _check_counts(groups, version)
    findings = _check_unnamed(groups)
    new_protocol: TableProtocol | None = _only(groups, TableProtocol)
    if new_protocol is not None:
        findings += check_new_protocol(new_protocol, protocol)
    protocol = new_protocol or protocol or _EVERYBODYS
    check_writable(protocol)
    new_metadata: MetaData | None = _only(groups, MetaData)
    if new_metadata is not None:
        findings += check_new_metadata(new_metadata, metadata, protocol)
    metadata = new_metadata or metadata
    rules = rules_of(protocol, metadata)
    findings += check_files(groups.get(AddFile, ()), groups.get(RemoveFile, ()), rules)
    findings += check_cdc(groups.get(CdcFile, ()), rules)
    check_txns(groups.get(Txn, ()))
    findings += check_domains(groups.get(DomainMetadata, ()), rules)
    return findings


#: only for a caller that does not know the protocol in force
_EVERYBODYS: Final = TableProtocol(min_reader_version=1, min_writer_version=1)


def _grouped(actions: Sequence[Action]) -> _Groups:
    groups: _Groups = by_kind(actions)
    for kind, members in groups.items():
        if kind not in ACTION_NAMES and kind is not UnknownAction:
            raise _breach("DL-CMT-03", f"{short(members[0])} is not an action")
        if kind in _MEMBERS and any(map(_EXTRA, members)):
            _check_extras(kind, members)
    return groups


def _check_extras(kind: type[Any], members: list[Any]) -> None:
    for action in members:
        if twice := _MEMBERS[kind] & action.extra.keys():
            message = f"{ACTION_NAMES[kind]} has {sorted(twice)} among its unknown members, too"
            raise _breach("DL-CMT-13", message)


def _check_counts(groups: _Groups, version: int) -> None:
    if foreign := groups.keys() & {CheckpointMetadata, Sidecar}:
        name = ACTION_NAMES[foreign.pop()]
        raise _breach("DL-CMT-05", f"{name} does not belong into a commit")
    for kind, rule in _AT_MOST_ONE.items():
        count = len(groups.get(kind, ()))
        if count > 1:
            raise _breach(rule, f"the commit has {count} {ACTION_NAMES[kind]} actions")
        if version == 0 and count == 0 and kind is not CommitInfo:
            raise _breach("DL-CMT-06", f"version 0 has no {ACTION_NAMES[kind]} action")


def _check_unnamed(groups: _Groups) -> list[Finding]:
    """Free-form parts: only their outline is checked."""
    if not groups or groups.keys() == {CommitInfo}:
        message = "the commit has no action that changes anything"
        return [Finding(rule="DL-CMT-15", severity=Severity.INFO, message=message)]
    info: CommitInfo | None = _only(groups, CommitInfo)
    if info is not None:
        time = info.get("inCommitTimestamp")
        if time is not None and (type(time) is not int or not 0 <= time <= INT64_MAX):
            raise _breach("DL-ICT-03", f"inCommitTimestamp is {short(time)}")
    unknown: list[UnknownAction] = groups.get(UnknownAction, [])
    for action in unknown:
        if len(action.fields) != 1 or action.fields.keys() & ACTION_NAMES.values():
            raise _breach("DL-CMT-03", f"not one unknown action: {short(action.fields)}")
    return [
        Finding(
            rule="DL-CMT-04",
            severity=Severity.WARNING,
            message=f"the unknown action {short(next(iter(action.fields)))} is carried through",
        )
        for action in unknown
    ]


def check_txns(txns: Sequence[Txn]) -> None:
    """Check the txn actions of a commit. Raises RuleViolationError for the first breach."""
    if not txns:
        return
    for txn in txns:
        check_text("DL-TXN-01", "appId", txn.app_id)
        for number in (txn.version, 0 if txn.last_updated is None else txn.last_updated):
            if type(number) is not int or not -INT64_MAX <= number <= INT64_MAX:
                raise _breach("DL-TXN-01", f"txn {short(txn.app_id)} has {short(number)}")
    twice = _repeated(txn.app_id for txn in txns)
    if twice is not None:
        raise _breach("DL-CMT-09", f"the commit has two txn actions of {short(twice)}")


def check_domains(domains: Sequence[DomainMetadata], rules: TableRules) -> list[Finding]:
    """Check the domains of a commit. Raises RuleViolationError for the first breach."""
    if not domains:
        return []
    if "domainMetadata" not in rules.features:
        message = "the protocol does not have the feature domainMetadata"
        raise _breach("DL-DOM-02", message, "add it: `delta.features.protocol_with`")
    findings: list[Finding] = []
    for action in domains:
        check_text("DL-DOM-01", "domain", action.domain)
        check_text("DL-DOM-01", f"configuration of {short(action.domain)}", action.configuration)
        if type(action.removed) is not bool:
            raise _breach("DL-DOM-01", f"removed of {short(action.domain)} is not a bool")
        if action.domain == CLUSTERING_DOMAIN and not action.removed:
            _check_clustering(action, rules)
        elif action.domain.startswith("delta.") and action.domain not in _KNOWN_DOMAINS:
            message = f"{short(action.domain)} is Delta's own, and unknown here"
            severity = Severity.WARNING
            findings.append(Finding(rule="DL-DOM-03", severity=severity, message=message))
    twice = _repeated(action.domain for action in domains)
    if twice is not None:
        raise _breach("DL-CMT-10", f"the commit has two domainMetadata actions of {short(twice)}")
    return findings


_KNOWN_DOMAINS: Final = frozenset({CLUSTERING_DOMAIN, ROW_TRACKING_DOMAIN})


def _check_clustering(action: DomainMetadata, rules: TableRules) -> None:
    if "clustering" not in rules.features:
        raise _breach("DL-CLU-01", "the protocol does not have the feature clustering")
    if rules.partition_names:
        raise _breach("DL-CLU-01", "a partitioned table cannot be clustered")
    try:
        columns = orjson.loads(action.configuration)["clusteringColumns"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as exc:
        message = f"{CLUSTERING_DOMAIN} has no clusteringColumns: {short(action.configuration)}"
        raise _breach("DL-CLU-01", message) from exc
    if not isinstance(columns, list) or not all(isinstance(path, list) for path in columns):
        message = f"clusteringColumns is not a list of column paths: {short(columns)}"
        raise _breach("DL-CLU-01", message)


def _only(groups: _Groups, kind: type[Any]) -> Any:
    return next(iter(groups.get(kind, ())), None)


def _repeated(names: Iterable[str]) -> str | None:
    counts = Counter(names).most_common(1)
    return counts[0][0] if counts and counts[0][1] > 1 else None


def _breach(rule: str, message: str, remedy: str | None = None) -> RuleViolationError:
    return RuleViolationError(message, rule=rule, remedy=remedy)
