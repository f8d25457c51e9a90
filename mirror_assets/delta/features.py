"""Table features: what a protocol promises, and the smallest protocol that promises enough.

Old protocols say by two numbers what new ones (reader 3, writer 7) list by name;
`effective_features` makes them one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mirror_assets.delta.actions import INT32_MAX, TableProtocol
from mirror_assets.delta.schema import StructType, dotted, short, walk_fields, walk_types
from mirror_assets.errors import RuleViolationError, UnsupportedTableError
from mirror_assets.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

READER_WITH_FEATURES: Final = 3
WRITER_WITH_FEATURES: Final = 7
_READER_WITH_COLUMN_MAPPING: Final = 2
_FEATURE_KEY: Final = "delta.feature."
_MIN_READER_KEY: Final = "delta.minReaderVersion"
_MIN_WRITER_KEY: Final = "delta.minWriterVersion"
_PREVIEW: Final = "-preview"
#: ours, unknown to every other writer, which therefore must not write (DL-PROT-11)
FENCE: Final = "mirrorAssetsFence"


class FeatureKind(StrEnum):
    """Whether readers, too, must know a feature."""

    READER_WRITER = "reader-writer"
    WRITER = "writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One table feature of the protocol or of an RFC."""

    name: str
    kind: FeatureKind = FeatureKind.WRITER
    #: the writer version below 7 that implies it, and the reader version below 3
    legacy_writer: int | None = None
    legacy_reader: int = 1
    needs: frozenset[str] = frozenset()
    #: whether we may commit to a table that has it
    writable: bool = True

    def implied_by(self, reader: int, writer: int) -> bool:
        """Whether a protocol without lists has it."""
        legacy = self.legacy_writer
        return legacy is not None and writer >= legacy and reader >= self.legacy_reader


_RW: Final = FeatureKind.READER_WRITER
_COLUMN_MAPPING: Final = "columnMapping"
_DOMAINS: Final = frozenset({"domainMetadata"})

#: section 4 of the rules, in its order
FEATURES: Final[Mapping[str, Feature]] = {
    feature.name: feature
    for feature in (
        Feature(name="appendOnly", legacy_writer=2),
        Feature(name="invariants", legacy_writer=2),
        Feature(name="checkConstraints", legacy_writer=3),
        Feature(name="changeDataFeed", legacy_writer=4),
        Feature(name="generatedColumns", legacy_writer=4),
        Feature(name=_COLUMN_MAPPING, kind=_RW, legacy_writer=5, legacy_reader=2),
        Feature(name="identityColumns", legacy_writer=6),
        Feature(name="deletionVectors", kind=_RW),
        Feature(name="timestampNtz", kind=_RW),
        Feature(name="domainMetadata"),
        Feature(name="rowTracking", needs=_DOMAINS),
        Feature(name="v2Checkpoint", kind=_RW),
        Feature(name="vacuumProtocolCheck", kind=_RW),
        Feature(name="inCommitTimestamp"),
        Feature(name="clustering", needs=_DOMAINS),
        Feature(name="allowColumnDefaults"),
        Feature(name="icebergCompatV1", needs=frozenset({_COLUMN_MAPPING})),
        Feature(name="icebergCompatV2", needs=frozenset({_COLUMN_MAPPING})),
        Feature(name="typeWidening", kind=_RW),
        Feature(name="variantType", kind=_RW),
        Feature(name="variantShredding", kind=_RW, needs=frozenset({"variantType"})),
        Feature(name="checkpointProtection"),
        # a path reader refuses such a table, and its catalog is not ours to speak for
        Feature(
            name="catalogManaged", kind=_RW, needs=frozenset({"inCommitTimestamp"}), writable=False
        ),
        Feature(name="icebergCompatV3", writable=False),
        Feature(name="icebergWriterCompatV1", writable=False),
        Feature(name="materializePartitionColumns", writable=False),
        Feature(name="columnMappingUsageTracking", writable=False),
        Feature(name="collations", writable=False),
        Feature(name="timestampNanos", kind=_RW, writable=False),
        Feature(name="adaptiveMetadata", kind=_RW, writable=False),
        # the protocol does not name it: that is what makes it a fence
        Feature(name=FENCE),
    )
}

_WRITABLE: Final = frozenset(name for name, feature in FEATURES.items() if feature.writable)
_NEEDED_BY_TYPE: Final = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_NEEDED_BY_COLUMN_KEY: Final = {
    "delta.columnMapping.": _COLUMN_MAPPING,
    "delta.identity.": "identityColumns",
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
    "delta.typeChanges": "typeWidening",
}
_NEEDED_BY_SWITCH: Final = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableVariantShredding": "variantShredding",
}


@dataclass(frozen=True, slots=True)
class Need:
    """A feature, what in the schema or the properties asks for it, and the rule that says so."""

    feature: str
    because: str
    rule: str


def effective_features(protocol: TableProtocol) -> frozenset[str]:
    """All features of a table, whether listed or implied by the version numbers."""
    return _effective_features(
        protocol.min_reader_version,
        protocol.min_writer_version,
        tuple(protocol.reader_features or ()),
        tuple(protocol.writer_features or ()),
    )


@lru_cache(maxsize=256)
def _effective_features(
    reader: int, writer: int, for_readers: tuple[str, ...], for_writers: tuple[str, ...]
) -> frozenset[str]:
    listed = frozenset(for_readers)
    if writer >= WRITER_WITH_FEATURES:
        return listed.union(for_writers)
    return listed.union(name for name, item in FEATURES.items() if item.implied_by(reader, writer))


def has_feature(features: frozenset[str], name: str) -> bool:
    """Whether a feature is there, be it under its preview name."""
    return name in features or f"{name}{_PREVIEW}" in features


def is_fenced(protocol: TableProtocol) -> bool:
    """Whether foreign writers must refuse the table."""
    return FENCE in effective_features(protocol)


def unsupported_writer_features(protocol: TableProtocol) -> frozenset[str]:
    """The features that forbid us to commit (DL-PROT-11): unknown, not accepted, or not ours."""
    return effective_features(protocol) - _WRITABLE


def schema_needs(schema: StructType) -> Iterator[Need]:
    """The features that a schema asks for (DL-SCH-07, 08)."""
    for path, kind in walk_types(schema):
        if (feature := _NEEDED_BY_TYPE.get(kind.name)) is not None:
            yield Need(feature, f"{dotted(path)} is of type {kind.name}", "DL-SCH-07")
    for path, member in walk_fields(schema):
        for key in member.metadata:
            for prefix, feature in _NEEDED_BY_COLUMN_KEY.items():
                if key.startswith(prefix):
                    yield Need(feature, f"{dotted(path)} has {key!r}", "DL-SCH-08")


def configuration_needs(configuration: Mapping[str, str]) -> Iterator[Need]:
    """The features that table properties ask for."""
    for key, feature in _NEEDED_BY_SWITCH.items():
        if configuration.get(key, "").lower() == "true":
            yield Need(feature, f"{key} is true", "DL-PROT-09")
    if configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        yield Need(_COLUMN_MAPPING, "delta.columnMapping.mode is set", "DL-CM-01")
    if configuration.get("delta.checkpointPolicy", "classic").lower() == "v2":
        yield Need("v2Checkpoint", "delta.checkpointPolicy is v2", "DL-V2-01")
    for key in configuration:
        if key.startswith("delta.constraints."):
            yield Need("checkConstraints", f"{short(key)} is set", "DL-PROT-09")


def protocol_with(protocol: TableProtocol, names: Iterable[str]) -> TableProtocol:
    """The protocol with these features and all they need.

    What the old numbers implied stays, by name. The reader version rises only if readers must
    know more. Raises UnsupportedTableError for a feature that we may not write.
    """
    old = effective_features(protocol)
    added = _closure(names) - old
    if not added:
        return protocol
    listed = list(protocol.writer_features or _in_table_order(old))
    writer_features = listed + [name for name in _in_table_order(added) if name not in listed]
    for_readers = [name for name in writer_features if _is_for_readers(name)]
    reader = _reader_version(protocol.min_reader_version, for_readers)
    reader_features: list[str] | None = None
    if reader == READER_WITH_FEATURES:
        kept = list(protocol.reader_features or ())
        reader_features = kept + [name for name in for_readers if name not in kept]
    return TableProtocol(
        min_reader_version=reader,
        min_writer_version=WRITER_WITH_FEATURES,
        reader_features=reader_features,
        writer_features=writer_features,
        extra=protocol.extra,
    )


def protocol_without(protocol: TableProtocol, name: str) -> TableProtocol:
    """The protocol without a writer-only feature; by the old numbers where they say the same."""
    kept = [feature for feature in protocol.writer_features or () if feature != name]
    reader = protocol.min_reader_version
    for writer in range(1, WRITER_WITH_FEATURES) if reader < READER_WITH_FEATURES else ():
        numbered = TableProtocol(
            min_reader_version=reader, min_writer_version=writer, extra=protocol.extra
        )
        if effective_features(numbered) == set(kept):
            return numbered
    return replace(protocol, writer_features=kept)


def protocol_for_new_table(schema: StructType, configuration: Mapping[str, str]) -> TableProtocol:
    """The smallest protocol for what the schema and the properties ask for.

    `delta.feature.*`, `delta.minReaderVersion` and `delta.minWriterVersion` are requests to be
    honoured here; `without_protocol_keys` gives the configuration to store.
    """
    needs = (*schema_needs(schema), *configuration_needs(configuration))
    names = {need.feature for need in needs} | set(_requested_features(configuration))
    reader = _requested_version(configuration, _MIN_READER_KEY, READER_WITH_FEATURES, 1)
    writer = _requested_version(configuration, _MIN_WRITER_KEY, WRITER_WITH_FEATURES, 2)
    if reader < READER_WITH_FEATURES and writer < WRITER_WITH_FEATURES:
        numbered = TableProtocol(min_reader_version=reader, min_writer_version=writer)
        implied = effective_features(numbered)
        if names <= implied:
            return numbered
        names |= implied if _MIN_WRITER_KEY in configuration else set()
    listed = TableProtocol(
        min_reader_version=reader,
        min_writer_version=WRITER_WITH_FEATURES,
        reader_features=[] if reader == READER_WITH_FEATURES else None,
        writer_features=[],
    )
    return protocol_with(listed, names)


def without_protocol_keys(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties that a metaData action may hold (DL-META-09)."""
    return {key: value for key, value in configuration.items() if not is_protocol_key(key)}


def is_protocol_key(key: str) -> bool:
    """Whether a property only speaks to the code that makes the protocol."""
    return key.startswith(_FEATURE_KEY) or key in (
        _MIN_READER_KEY,
        _MIN_WRITER_KEY,
        "delta.ignoreProtocolDefaults",
    )


def check_protocol(protocol: TableProtocol) -> list[Finding]:
    """What breaks DL-PROT-01 to 09; an empty list is a sound protocol."""
    versions = (protocol.min_reader_version, protocol.min_writer_version)
    for version in versions:
        if type(version) is not int or not 0 <= version <= INT32_MAX:
            return [_error("DL-PROT-01", f"a protocol version is {short(version)}, not an integer")]
    broken = list(_check_versions(protocol)) or list(_check_lists(protocol))
    return broken or list(_check_features(protocol))


def _check_versions(protocol: TableProtocol) -> Iterator[Finding]:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if not 1 <= reader <= READER_WITH_FEATURES or not 1 <= writer <= WRITER_WITH_FEATURES:
        message = f"reader {reader} and writer {writer} are outside of 1..3 and 1..7"
        yield _error("DL-PROT-02", message)
    elif reader == READER_WITH_FEATURES and writer != WRITER_WITH_FEATURES:
        yield _error("DL-PROT-05", f"reader version 3 needs writer version 7, not {writer}")


def _check_lists(protocol: TableProtocol) -> Iterator[Finding]:
    for rule, features, name, expected in (
        (
            "DL-PROT-03",
            protocol.reader_features,
            "readerFeatures",
            protocol.min_reader_version == READER_WITH_FEATURES,
        ),
        (
            "DL-PROT-04",
            protocol.writer_features,
            "writerFeatures",
            protocol.min_writer_version == WRITER_WITH_FEATURES,
        ),
    ):
        if features is None:
            if expected:
                yield _error(rule, f"{name} is missing")
        elif not expected:
            yield _error(rule, f"{name} is there, though the version number does not allow it")
        elif any(type(item) is not str for item in features):
            yield _error("DL-PROT-01", f"{name} is not a list of names: {short(features)}")


def _check_features(protocol: TableProtocol) -> Iterator[Finding]:
    readers, writers = set(protocol.reader_features or ()), set(protocol.writer_features or ())
    for name in sorted(readers - writers):
        yield _error("DL-PROT-06", f"{name!r} is in readerFeatures, but not in writerFeatures")
    for name in sorted(readers):
        if name in FEATURES and not _is_for_readers(name):
            yield _error("DL-PROT-07", f"the writer-only feature {name!r} is in readerFeatures")
    if protocol.min_reader_version == READER_WITH_FEATURES:
        for name in sorted(filter(_is_for_readers, writers - readers)):
            message = f"{name!r} is in writerFeatures, but not in readerFeatures"
            yield Finding(rule="DL-PROT-08", severity=Severity.WARNING, message=message)
    elif unread := sorted(filter(_is_for_readers, writers - {_COLUMN_MAPPING})):
        message = f"{unread[0]!r} needs reader version 3, not {protocol.min_reader_version}"
        yield _error("DL-PROT-07", message)
    yield from _check_dependencies(effective_features(protocol))


def _check_dependencies(features: frozenset[str]) -> Iterator[Finding]:
    for name in sorted(features & FEATURES.keys()):
        for needed in sorted(FEATURES[name].needs):
            if not has_feature(features, needed):
                yield _error("DL-PROT-09", f"the feature {name!r} needs {needed!r}")


def _closure(names: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        feature = FEATURES.get(name)
        if feature is None or not feature.writable:
            message = f"the table feature {short(name)} is not supported"
            raise UnsupportedTableError(message, rule="DL-PROT-11", remedy="leave the feature out")
        found.add(name)
        pending.extend(feature.needs - found)
    return frozenset(found)


def _in_table_order(names: Iterable[str]) -> list[str]:
    wanted = set(names)
    return [name for name in FEATURES if name in wanted] + sorted(wanted - FEATURES.keys())


def _is_for_readers(name: str) -> bool:
    feature = FEATURES.get(name)
    return feature is not None and feature.kind is FeatureKind.READER_WRITER


def _reader_version(old: int, for_readers: list[str]) -> int:
    if old == READER_WITH_FEATURES or any(name != _COLUMN_MAPPING for name in for_readers):
        return READER_WITH_FEATURES
    return max(old, _READER_WITH_COLUMN_MAPPING) if for_readers else old


def _requested_features(configuration: Mapping[str, str]) -> Iterator[str]:
    for key, value in configuration.items():
        if key.startswith(_FEATURE_KEY):
            if value.lower() not in ("supported", "enabled"):
                message = f"{short(key)} is {short(value)}, not 'supported'"
                raise RuleViolationError(message, rule="DL-META-09")
            yield key.removeprefix(_FEATURE_KEY)


def _requested_version(
    configuration: Mapping[str, str], key: str, largest: int, default: int
) -> int:
    text = configuration.get(key, str(default))
    if not text.isdecimal() or not 1 <= int(text) <= largest:
        message = f"{key} is {short(text)}, not a number from 1 to {largest}"
        raise RuleViolationError(message, rule="DL-PROT-02")
    return int(text)


def _error(rule: str, message: str) -> Finding:
    remedy = "write the protocol action anew with `delta.features.protocol_with`"
    return Finding(rule=rule, severity=Severity.ERROR, message=message, remedy=remedy)
