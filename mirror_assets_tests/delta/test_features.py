from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_assets.delta import commit_file
from mirror_assets.delta.actions import TableProtocol
from mirror_assets.delta.features import (
    check_protocol,
    effective_features,
    protocol_for_new_table,
    protocol_with,
    unsupported_writer_features,
    without_protocol_keys,
)
from mirror_assets.delta.schema import parse_schema
from mirror_assets.errors import RuleViolationError, UnsupportedTableError
from mirror_assets.findings import Severity, errors_of
from mirror_assets_tests.delta.samples import a_field, a_protocol, a_schema

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = parse_schema(a_schema())


def versions(reader, writer, *, readers=None, writers=None):
    return TableProtocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=readers,
        writer_features=writers,
    )


@pytest.mark.parametrize(
    ("protocol", "features"),
    [
        (versions(1, 1), set()),
        (versions(1, 2), {"appendOnly", "invariants"}),
        (versions(1, 3), {"appendOnly", "invariants", "checkConstraints"}),
        (versions(1, 7, writers=["domainMetadata"]), {"domainMetadata"}),
        (versions(3, 7, readers=["v2Checkpoint"], writers=["v2Checkpoint"]), {"v2Checkpoint"}),
    ],
)
def test_features_are_those_listed_or_those_implied_by_the_numbers(protocol, features):
    assert effective_features(protocol) == features


def test_column_mapping_is_implied_only_where_readers_know_it():
    assert "columnMapping" in effective_features(versions(2, 5))
    assert "columnMapping" not in effective_features(versions(1, 5))


@pytest.mark.parametrize(
    "protocol",
    [
        versions(1, 1),
        versions(2, 6),
        versions(1, 7, writers=[]),
        versions(2, 7, writers=["columnMapping"]),
        versions(3, 7, readers=[], writers=[]),
        versions(3, 7, readers=["deletionVectors"], writers=["deletionVectors", "appendOnly"]),
        versions(1, 7, writers=["rowTracking", "domainMetadata"]),
        versions(3, 7, readers=["someday"], writers=["someday"]),
    ],
)
def test_sound_protocols_have_no_findings(protocol):
    assert check_protocol(protocol) == []


@pytest.mark.parametrize(
    ("protocol", "rule"),
    [
        (versions("1", 2), "DL-PROT-01"),
        (versions(True, 2), "DL-PROT-01"),
        (versions(4, 7, writers=[]), "DL-PROT-02"),
        (versions(1, 8), "DL-PROT-02"),
        (versions(3, 7, writers=[]), "DL-PROT-03"),
        (versions(1, 2, readers=[]), "DL-PROT-03"),
        (versions(1, 7), "DL-PROT-04"),
        (versions(1, 2, writers=[]), "DL-PROT-04"),
        (versions(3, 6, readers=[]), "DL-PROT-05"),
        (versions(3, 7, readers=["deletionVectors"], writers=[]), "DL-PROT-06"),
        (versions(3, 7, readers=["appendOnly"], writers=["appendOnly"]), "DL-PROT-07"),
        (versions(1, 7, writers=["deletionVectors"]), "DL-PROT-07"),
        (versions(1, 7, writers=["rowTracking"]), "DL-PROT-09"),
        (versions(1, 7, writers=["icebergCompatV2"]), "DL-PROT-09"),
    ],
)
def test_a_flaw_of_the_protocol_is_an_error_of_its_rule(protocol, rule):
    assert [finding.rule for finding in errors_of(check_protocol(protocol))] == [rule]


def test_a_reader_feature_listed_only_for_writers_is_a_warning():
    protocol = versions(3, 7, readers=[], writers=["columnMapping"])
    (finding,) = check_protocol(protocol)
    assert (finding.rule, finding.severity) == ("DL-PROT-08", Severity.WARNING)


@pytest.mark.parametrize(
    "name", ["someday", "catalogManaged", "collations", "typeWidening-preview", "timestampNanos"]
)
def test_unknown_and_unaccepted_features_forbid_writing(name):
    assert unsupported_writer_features(a_protocol("appendOnly", name)) == {name}


def test_accepted_features_do_not_forbid_writing():
    protocol = a_protocol("rowTracking", "domainMetadata", reader=["deletionVectors"])
    assert not unsupported_writer_features(protocol)
    assert not unsupported_writer_features(versions(2, 6))


def test_adding_a_writer_feature_names_what_the_numbers_implied_and_leaves_readers_alone():
    protocol = protocol_with(versions(1, 3), ["inCommitTimestamp"])
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
    assert protocol.reader_features is None
    expected = ["appendOnly", "invariants", "checkConstraints", "inCommitTimestamp"]
    assert protocol.writer_features == expected


def test_adding_a_reader_feature_lists_every_reader_feature():
    protocol = protocol_with(versions(2, 5), ["deletionVectors"])
    assert protocol.min_reader_version == 3
    assert protocol.reader_features == ["columnMapping", "deletionVectors"]
    assert set(protocol.reader_features) <= set(protocol.writer_features or ())


def test_column_mapping_alone_needs_only_reader_version_2():
    protocol = protocol_with(a_protocol("inCommitTimestamp"), ["columnMapping"])
    assert (protocol.min_reader_version, protocol.reader_features) == (2, None)
    assert check_protocol(protocol) == []


@pytest.mark.parametrize(
    "names",
    [["rowTracking"], ["clustering"], ["icebergCompatV1"], ["variantShredding"], ["v2Checkpoint"]],
)
def test_what_is_added_brings_what_it_needs(names):
    protocol = protocol_with(versions(1, 2), names)
    assert check_protocol(protocol) == []
    assert effective_features(protocol) >= {*names, "appendOnly", "invariants"}


def test_listed_features_keep_their_order():
    protocol = protocol_with(a_protocol("inCommitTimestamp", "appendOnly"), ["domainMetadata"])
    assert protocol.writer_features == ["inCommitTimestamp", "appendOnly", "domainMetadata"]


def test_adding_what_is_there_changes_nothing():
    protocol = versions(1, 4)
    assert protocol_with(protocol, ["changeDataFeed"]) is protocol


@pytest.mark.parametrize("name", ["someday", "catalogManaged"])
def test_a_feature_that_we_may_not_write_is_not_added(name):
    with pytest.raises(UnsupportedTableError, match=name):
        protocol_with(versions(1, 2), [name])


def test_a_new_table_without_wishes_gets_the_protocol_that_everybody_knows():
    assert protocol_for_new_table(PLAIN, {}) == versions(1, 2)
    assert protocol_for_new_table(PLAIN, {"delta.appendOnly": "true"}) == versions(1, 2)


@pytest.mark.parametrize(
    ("configuration", "features"),
    [
        ({"delta.enableInCommitTimestamps": "true"}, {"inCommitTimestamp"}),
        ({"delta.enableInCommitTimestamps": "false", "delta.feature.clustering": "supported"},
         {"clustering", "domainMetadata"}),
        ({"delta.enableChangeDataFeed": "true"}, {"changeDataFeed"}),
        ({"delta.constraints.positive": "id > 0"}, {"checkConstraints"}),
        ({"delta.enableRowTracking": "true"}, {"rowTracking", "domainMetadata"}),
        ({"delta.columnMapping.mode": "name"}, {"columnMapping"}),
        ({"delta.enableDeletionVectors": "true"}, {"deletionVectors"}),
        ({"delta.checkpointPolicy": "v2"}, {"v2Checkpoint"}),
        ({"delta.enableTypeWidening": "true"}, {"typeWidening"}),
        ({"delta.feature.vacuumProtocolCheck": "supported"}, {"vacuumProtocolCheck"}),
        ({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, set()),
        ({"delta.minReaderVersion": "1", "delta.minWriterVersion": "3"},
         {"appendOnly", "invariants", "checkConstraints"}),
    ],
)  # fmt: skip
def test_a_new_table_has_exactly_the_features_its_properties_ask_for(configuration, features):
    protocol = protocol_for_new_table(PLAIN, configuration)
    assert effective_features(protocol) == features
    assert check_protocol(protocol) == []


@pytest.mark.parametrize(
    ("column", "feature"),
    [
        (a_field("c", "timestamp_ntz"), "timestampNtz"),
        (a_field("c", {"type": "array", "elementType": "variant", "containsNull": True}),
         "variantType"),
        (a_field("c", **{"delta.generationExpression": "1"}), "generatedColumns"),
        (a_field("c", **{"delta.identity.start": 1}), "identityColumns"),
        (a_field("c", **{"delta.invariants": "{}"}), "invariants"),
        (a_field("c", CURRENT_DEFAULT="0"), "allowColumnDefaults"),
        (a_field("c", **{"delta.typeChanges": []}), "typeWidening"),
    ],
)  # fmt: skip
def test_a_new_table_has_the_features_its_columns_ask_for(column, feature):
    protocol = protocol_for_new_table(parse_schema(a_schema(column)), {})
    assert feature in effective_features(protocol)
    assert check_protocol(protocol) == []


@pytest.mark.parametrize(
    ("configuration", "rule"),
    [
        ({"delta.feature.clustering": "no"}, "DL-META-09"),
        ({"delta.minReaderVersion": "4"}, "DL-PROT-02"),
        ({"delta.minWriterVersion": "seven"}, "DL-PROT-02"),
    ],
)
def test_a_wish_that_cannot_be_read_is_refused(configuration, rule):
    with pytest.raises(RuleViolationError) as caught:
        protocol_for_new_table(PLAIN, configuration)
    assert caught.value.rule == rule


def test_wishes_for_the_protocol_are_not_stored_among_the_properties():
    configuration = {
        "delta.feature.clustering": "supported",
        "delta.minReaderVersion": "1",
        "delta.minWriterVersion": "7",
        "delta.appendOnly": "true",
        "mine": "x",
    }
    assert without_protocol_keys(configuration) == {"delta.appendOnly": "true", "mine": "x"}


@pytest.mark.corpora
def test_protocols_of_real_tables_are_sound(corpora: Path):
    unsound = set()
    for path in sorted(corpora.rglob("_delta_log/*.json")):
        if not path.stem.isdecimal():
            continue
        for action in commit_file.decode(path.read_bytes()).actions:
            if isinstance(action, TableProtocol) and errors_of(check_protocol(action)):
                unsound.add(str(path.parent.parent.relative_to(corpora)))
    # both ask for a reader version that does not exist, on purpose
    assert unsound == {"delta-rs/simple_table_features", "golden/deltalog-invalid-protocol-version"}
