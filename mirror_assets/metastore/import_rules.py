"""What an import refuses, and what it only mentions.

A log is refused where its state cannot be trusted, or where readers would not read it. What
readers tolerate in foreign history is noted and imported as it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mirror_assets.delta.actions import MetaData, TableProtocol
from mirror_assets.delta.features import (
    FEATURES,
    READER_WITH_FEATURES,
    WRITER_WITH_FEATURES,
    FeatureKind,
    check_protocol,
    is_fenced,
    unsupported_writer_features,
)
from mirror_assets.delta.schema import parse_schema
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_assets.metastore.import_findings import FindingLog
    from mirror_assets.metastore.import_parts import CommitFacts

_PREVIEW: Final = "-preview"
#: lists that contradict the version numbers: no reader opens such a table
_BROKEN_PROTOCOL: Final = {f"DL-PROT-0{number}" for number in range(1, 7)}
#: another catalog ratifies the commits of such a table
_FOREIGN_CATALOG: Final = frozenset({"catalogManaged", "catalogOwned", "coordinatedCommits"})
#: it changes what a log means, not only what its data files hold
_UNREADABLE: Final = frozenset({"adaptiveMetadata"})
_ODDITIES: Final = {
    "DL-CMT-01": "a byte order mark before the first action",
    "DL-CMT-02": "actions that do not stand alone on a line",
    "DL-CMT-04": "an action that the protocol does not name; it is carried through",
    "DL-CMT-05": "an action that belongs into checkpoints only",
}


class LogRules:
    """Follows protocol and metaData through the versions, and judges what is in force."""

    def __init__(self, findings: FindingLog) -> None:
        self._findings = findings
        self.protocol: TableProtocol | None = None
        self.metadata: MetaData | None = None
        #: findings about what is in force; they refuse the import unless it is replaced
        self._about: dict[type[TableProtocol | MetaData], list[Finding]] = {}

    def see_base(self, version: int, told: list[TableProtocol | MetaData], file: str) -> None:
        """Take the state at the floor from what a checkpoint told (DL-CP-04)."""
        for name, kind in (("protocol", TableProtocol), ("metaData", MetaData)):
            if (count := sum(isinstance(action, kind) for action in told)) != 1:
                message = f"the checkpoint has {count} actions {name}, not one"
                self._error("DL-CP-04", message, version, file)
        for action in told:
            self._see(action, version, file)

    def see_commit(self, facts: CommitFacts, *, is_floor: bool) -> None:
        """Take one commit of the state's history; `is_floor` if it is the first."""
        for finding in _inside(facts):
            self._findings.add(finding)
        for protocol in facts.protocols:
            self._see(protocol, facts.version, facts.file)
        for metadata in facts.metadata:
            self._see(metadata, facts.version, facts.file)
        if is_floor:
            self._require_both("DL-CMT-06", facts.version, facts.file)

    def see_history(self, facts: CommitFacts) -> None:
        """Take a commit below the floor, which nobody reads for the state."""
        for finding in _inside(facts):
            self._findings.add(_milder(finding, Severity.INFO))

    def judge_head(self, version: int) -> None:
        """Add what refuses the import because of what is in force at the head."""
        for finding in (finding for about in self._about.values() for finding in about):
            self._findings.add(finding)
        if self.protocol is not None and (names := unsupported_writer_features(self.protocol)):
            message = (
                f"table features that are not supported for writing: {', '.join(sorted(names))}"
            )
            remedy = "its commits can be published, but none can be added until they are dropped"
            self._findings.note(
                "DL-PROT-11", Severity.WARNING, message, version=version, remedy=remedy
            )

    def judge_owner(self, version: int) -> None:
        """Add what refuses a log that a deployment of ours has fenced: it has an owner."""
        if self.protocol is None or not is_fenced(self.protocol):
            return
        message = "the table is fenced: another metastore publishes its commits"
        remedy = (
            "`mirror-assets release` it there; or, where that metastore is gone for good, import "
            "with `--take-over`"
        )
        self._findings.note("DL-CAT-07", Severity.ERROR, message, version=version, remedy=remedy)

    def _see(self, action: TableProtocol | MetaData, version: int, file: str) -> None:
        """What is replaced was harmful only to versions of the past."""
        for finding in self._about.get(type(action), ()):
            self._findings.add(_milder(finding, Severity.WARNING))
        if isinstance(action, TableProtocol):
            self.protocol = action
            about = list(_about_protocol(action))
        else:
            self.metadata = action
            about = list(_about_metadata(action))
        self._about[type(action)] = [replace(f, version=version, file=file) for f in about]

    def _require_both(self, rule: str, version: int, file: str) -> None:
        for name, action in (("protocol", self.protocol), ("metaData", self.metadata)):
            if action is None:
                self._error(rule, f"the table begins without a {name} action", version, file)

    def _error(self, rule: str, message: str, version: int, file: str) -> None:
        self._findings.note(rule, Severity.ERROR, message, version=version, file=file)


def _about_protocol(protocol: TableProtocol) -> Iterator[Finding]:
    """What forbids to read a table, or is odd about its protocol."""
    for finding in check_protocol(protocol):
        too_new_to_write = (
            finding.rule == "DL-PROT-02"
            and protocol.min_reader_version <= READER_WITH_FEATURES
            and protocol.min_writer_version > WRITER_WITH_FEATURES
        )
        refuses = finding.rule in _BROKEN_PROTOCOL and not too_new_to_write
        severity = Severity.ERROR if refuses else Severity.WARNING
        yield replace(finding, severity=severity, remedy="repair the table with its own writer")
    names = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    for name in sorted(names):
        if name.removesuffix(_PREVIEW) in _FOREIGN_CATALOG:
            message = f"the feature {name!r}: another catalog owns the table"
            remedy = "publish all commits and drop the feature first"
            yield _finding("DL-CAT-01", Severity.ERROR, message, remedy)
    for name in sorted(protocol.reader_features or ()):
        if not _is_readable(name):
            message = f"the reader feature {name!r} is not known: the state cannot be trusted"
            yield _finding("DL-PROT-02", Severity.ERROR, message, "drop the feature first")


def _is_readable(name: str) -> bool:
    stable = name.removesuffix(_PREVIEW)
    feature = FEATURES.get(stable)
    if stable in _FOREIGN_CATALOG:
        return True
    known = feature is not None and feature.kind is FeatureKind.READER_WRITER
    return known and stable not in _UNREADABLE


def _about_metadata(metadata: MetaData) -> Iterator[Finding]:
    if not metadata.schema_string:
        message = "metaData without schemaString: current readers refuse the table"
        yield _finding("DL-META-01", Severity.ERROR, message, "commit a metaData with its schema")
        return
    try:
        parse_schema(metadata.schema_string)
    except MirrorAssetsError as exc:
        yield _finding(exc.rule or "DL-SCH-01", Severity.WARNING, exc.message, "correct the schema")
    if metadata.format.provider != "parquet":
        message = f"the format is {metadata.format.provider!r}, not parquet"
        yield _finding("DL-META-03", Severity.WARNING, message, "commit a metaData with parquet")


def _inside(facts: CommitFacts) -> Iterator[Finding]:
    """What rules of single commits say (DL-CMT)."""
    info, warning, error = Severity.INFO, Severity.WARNING, Severity.ERROR
    if not facts.num_actions and facts.raw_file is None:
        yield _at(facts, "DL-CMT-15", warning, "a commit without any action")
    elif not facts.final_newline:
        yield _at(facts, "DL-CMT-12", info, "no newline at the end of the file")
    if facts.info_ordinal:
        yield _at(facts, "DL-CMT-11", info, "commitInfo is not on the first line")
    for rule, line in facts.oddities:
        message = _ODDITIES.get(rule, "a line that cannot be understood; its bytes are kept")
        yield replace(_at(facts, rule, info, message), line=line)
    for rule, name, found in (
        ("DL-CMT-07", "metaData", facts.metadata),
        ("DL-CMT-08", "protocol", facts.protocols),
    ):
        if len(found) > 1:
            same = all(action == found[0] for action in found)
            message = f"{len(found)} actions {name} in one commit: which one holds is undefined"
            yield _at(facts, rule, warning if same else error, message)
    for rule, name, keys in (
        ("DL-CMT-09", "txn of the application", facts.app_ids),
        ("DL-CMT-10", "domainMetadata of", facts.domains),
    ):
        for key, count in Counter(keys).items():
            if count > 1:
                yield _at(facts, rule, warning, f"{count} actions {name} {key!r} in one commit")


def _milder(finding: Finding, severity: Severity) -> Finding:
    """The finding, which shall not refuse the import."""
    is_error = finding.severity is Severity.ERROR
    return replace(finding, severity=severity) if is_error else finding


def _at(facts: CommitFacts, rule: str, severity: Severity, message: str) -> Finding:
    found = _finding(rule, severity, message, "")
    return replace(found, version=facts.version, file=facts.file)


def _finding(rule: str, severity: Severity, message: str, remedy: str) -> Finding:
    return Finding(rule=rule, severity=severity, message=message, remedy=remedy)
