"""What the log has said up to a version: the state that commits and checkpoints are judged by.

It is not always known: where commits are missing, only the next checkpoint tells it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import orjson

from mirror_assets.conformance.file_columns import key_hash
from mirror_assets.conformance.live_files import LiveFiles
from mirror_assets.delta.actions import (
    Action,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    MetaData,
    RemoveFile,
    TableProtocol,
    Txn,
)
from mirror_assets.delta.conflicts import ROW_TRACKING_DOMAIN
from mirror_assets.delta.features import effective_features
from mirror_assets.delta.metadata_rules import walk_physically
from mirror_assets.delta.schema import COLUMN_MAPPING_ID, parse_schema
from mirror_assets.delta.table_rules import TableRules, is_on, rules_of, uses_physical_names
from mirror_assets.errors import RuleViolationError

_EVERYBODYS: Final = TableProtocol(min_reader_version=1, min_writer_version=1)


@dataclass(slots=True, kw_only=True)
class History:
    """The state before a commit; `live` is None where the log does not tell which files live."""

    version: int = -1
    protocol: TableProtocol | None = None
    metadata: MetaData | None = None
    live: LiveFiles | None = field(default_factory=LiveFiles)
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    #: hash of each removed logical file to the time of its removal
    tombstones: dict[int, int] = field(default_factory=dict)
    in_commit_ms: int | None = None
    #: the newest time that a commit gave for itself
    commit_ms: int | None = None
    #: deletion vectors of live files by path, with the version that brought them
    vectors: dict[str, tuple[int, DeletionVector]] = field(default_factory=dict)
    #: physical column to its column mapping id, over all versions
    physical: dict[str, int] = field(default_factory=dict)
    _known_features: tuple[TableProtocol | None, frozenset[str]] | None = None
    _known_rules: tuple[TableProtocol | None, MetaData | None, TableRules] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the whole state is."""
        return self.live is not None

    @property
    def features(self) -> frozenset[str]:
        """What the protocol in force promises."""
        if self._known_features is None or self._known_features[0] is not self.protocol:
            found = effective_features(self.protocol or _EVERYBODYS)
            self._known_features = (self.protocol, found)
        return self._known_features[1]

    @property
    def configuration(self) -> dict[str, str]:
        """The table properties in force."""
        return {} if self.metadata is None else self.metadata.configuration

    def is_active(self, feature: str, switch: str) -> bool:
        """Whether a feature is supported and switched on."""
        return feature in self.features and is_on(self.configuration, switch)

    def rules(self) -> TableRules:
        """What the table demands of file actions."""
        known = self._known_rules
        if known is None or known[0] is not self.protocol or known[1] is not self.metadata:
            found = rules_of(self.protocol or _EVERYBODYS, self.metadata)
            known = self._known_rules = (self.protocol, self.metadata, found)
        return known[2]

    def high_water_mark(self) -> int | None:
        """The largest row id that was given out, by the domain of row tracking."""
        return high_water_mark(self.domains.get(ROW_TRACKING_DOMAIN))

    def forget(self) -> None:
        """From here on the log does not tell which files live; what else is known may be old."""
        self.live = None

    def with_settings(self, actions: list[Action]) -> History:
        """A look ahead: the same, with the protocol and metaData of the actions."""
        protocol = next((a for a in actions if isinstance(a, TableProtocol)), self.protocol)
        metadata = next((a for a in actions if isinstance(a, MetaData)), self.metadata)
        return History(version=self.version, protocol=protocol, metadata=metadata, live=self.live)

    def apply(self, version: int, actions: list[Action]) -> None:
        """Go one version on; removes first, since order inside a commit says nothing."""
        if version != self.version + 1:
            self.forget()
        self.version = version
        adds: list[AddFile] = []
        for action in actions:
            match action:
                case AddFile():
                    adds.append(action)
                case RemoveFile():
                    self._remove(action)
                case MetaData():
                    self.metadata = action
                case TableProtocol():
                    self.protocol = action
                case Txn():
                    self.txns[action.app_id] = action
                case DomainMetadata():
                    self._domain(action)
                case CommitInfo():
                    self.remember_time(action)
                case _:
                    pass
        self._add(adds)

    def remember_time(self, info: CommitInfo) -> None:
        """When the version was made, by its own commitInfo."""
        inside, outside = info.get("inCommitTimestamp"), info.get("timestamp")
        if type(inside) is int:
            self.in_commit_ms = inside
        told = inside if type(inside) is int else outside
        if type(told) is int:
            self.commit_ms = told

    def _remove(self, action: RemoveFile) -> None:
        self.tombstones[key_hash(action.path, action.dv_id)] = action.deletion_timestamp or 0
        if self.live is None:
            return
        file = self.live.get(action.path)
        if file is not None and file.vector == hash(action.dv_id):
            self.live.drop(action.path)
            self.vectors.pop(action.path, None)

    def _add(self, adds: list[AddFile]) -> None:
        if self.live is None or not adds:
            return
        for add in adds:
            if self.tombstones:
                self.tombstones.pop(key_hash(add.path, add.dv_id), None)
            if add.deletion_vector is not None:
                self.vectors[add.path] = (self.version, add.deletion_vector)
            self.live.put(add)

    def _domain(self, action: DomainMetadata) -> None:
        if action.removed:
            self.domains.pop(action.domain, None)
        else:
            self.domains[action.domain] = action


def high_water_mark(domain: DomainMetadata | None) -> int | None:
    """The mark in a domain of row tracking; None where it has none."""
    if domain is None:
        return None
    try:
        mark = orjson.loads(domain.configuration).get("rowIdHighWaterMark")
    except (orjson.JSONDecodeError, AttributeError):
        return None
    return mark if type(mark) is int else None


def physical_columns(metadata: MetaData) -> Iterator[tuple[str, int]]:
    """Each physical column with its id, where columns are mapped and the schema can be read."""
    if not uses_physical_names(metadata.configuration):
        return
    try:
        schema = parse_schema(metadata.schema_string)
    except RuleViolationError:
        return
    for path, member in walk_physically(schema):
        number = member.metadata.get(COLUMN_MAPPING_ID)
        if type(number) is int:
            yield ".".join(path), number
