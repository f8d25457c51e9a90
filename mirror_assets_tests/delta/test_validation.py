from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from mirror_assets.delta import commit_file
from mirror_assets.delta.actions import (
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    Format,
    MetaData,
    Sidecar,
    TableProtocol,
    Txn,
    UnknownAction,
)
from mirror_assets.delta.validation import validate_commit
from mirror_assets.errors import PermanentError, RuleViolationError, UnsupportedTableError
from mirror_assets_tests.delta.samples import (
    a_domain,
    a_field,
    a_metadata,
    a_protocol,
    a_remove,
    a_schema,
    an_add,
    stats_of,
)
from mirror_assets_tests.delta.validating import (
    DOMAINS,
    MAPPING,
    PLAIN,
    mapped,
    partitioned,
    rule_broken,
    rules_noted,
    validate,
    with_mapping,
)

if TYPE_CHECKING:
    from pathlib import Path


class TestCommit:
    def test_an_ordinary_commit_is_accepted_without_a_word(self):
        info = CommitInfo({"operation": "WRITE", "inCommitTimestamp": 5})
        files = [an_add("a", stats=stats_of(3)), an_add("b"), a_remove("c")]
        assert validate(info, *files, Txn(app_id="me", version=1)) == []

    def test_version_0_needs_protocol_and_metadata(self):
        first = [PLAIN, a_metadata(), an_add()]
        assert validate_commit(first, version=0, protocol=None, metadata=None) == []
        for missing in (0, 1):
            actions = [action for i, action in enumerate(first) if i != missing]
            with pytest.raises(RuleViolationError) as caught:
                validate_commit(actions, version=0, protocol=None, metadata=None)
            assert caught.value.rule == "DL-CMT-06"

    @pytest.mark.parametrize(
        ("actions", "rule"),
        [
            ([CheckpointMetadata(version=1)], "DL-CMT-05"),
            ([Sidecar(path="s", size_in_bytes=1, modification_time=1)], "DL-CMT-05"),
            ([a_metadata(), a_metadata()], "DL-CMT-07"),
            ([PLAIN, PLAIN], "DL-CMT-08"),
            ([Txn(app_id="x", version=1), Txn(app_id="x", version=2)], "DL-CMT-09"),
            ([CommitInfo({}), CommitInfo({})], "DL-CMT-11"),
            ([UnknownAction(fields={"a": 1, "b": 2})], "DL-CMT-03"),
            ([UnknownAction(fields={"add": {}})], "DL-CMT-03"),
            ([an_add(extra={"path": "twice"})], "DL-CMT-13"),
            (["add"], "DL-CMT-03"),
            ([CommitInfo({"inCommitTimestamp": "now"}), an_add()], "DL-ICT-03"),
            ([Txn(app_id="a\x00b", version=1)], "DL-TXN-01"),
            ([Txn(app_id="a", version=1.0)], "DL-TXN-01"),
            ([Txn(app_id="a", version=True)], "DL-TXN-01"),
        ],
    )
    def test_a_breach_is_refused_by_its_rule(self, actions, rule):
        assert rule_broken(*actions) == rule

    def test_one_txn_per_application_is_accepted(self):
        txns = [Txn(app_id="x", version=1), Txn(app_id="y", version=-1, last_updated=5)]
        assert validate(*txns) == []

    def test_unknown_members_and_actions_are_carried_through(self):
        assert validate(an_add(extra={"later": 1})) == []
        assert rules_noted(UnknownAction(fields={"later": {}})) == {"DL-CMT-04"}

    @pytest.mark.parametrize("actions", [[], [CommitInfo({"operation": "NOTHING"})]])
    def test_a_commit_that_changes_nothing_is_noted(self, actions):
        assert rules_noted(*actions) == {"DL-CMT-15"}


class TestProtocol:
    def test_a_protocol_that_keeps_all_features_is_accepted(self):
        old = TableProtocol(min_reader_version=1, min_writer_version=2)
        assert validate(a_protocol("invariants", "appendOnly"), protocol=old) == []

    @pytest.mark.parametrize(
        ("new", "rule"),
        [
            (TableProtocol(min_reader_version=1, min_writer_version=7), "DL-PROT-04"),
            (a_protocol("rowTracking"), "DL-PROT-09"),
            (a_protocol("domainMetadata"), "DL-PROT-10"),
            (TableProtocol(min_reader_version=1, min_writer_version=2), "DL-PROT-10"),
        ],
    )
    def test_a_breach_is_refused_by_its_rule(self, new, rule):
        assert rule_broken(new, protocol=DOMAINS) == rule

    @pytest.mark.parametrize(
        ("protocol", "rule"),
        [
            (a_protocol("someday"), "DL-PROT-11"),
            (a_protocol("collations"), "DL-PROT-11"),
            (TableProtocol(min_reader_version=1, min_writer_version=8), "DL-PROT-02"),
        ],
    )
    def test_a_table_that_asks_for_more_than_we_know_is_not_written(self, protocol, rule):
        with pytest.raises(UnsupportedTableError) as caught:
            validate(an_add(), protocol=protocol)
        assert (caught.value.rule, caught.value.version) == (rule, 3)


class TestMetadata:
    @pytest.mark.parametrize(
        ("new", "rule"),
        [
            (a_metadata(id=""), "DL-META-01"),
            (a_metadata(id=7), "DL-META-01"),
            (a_metadata(partition_columns=("id",)), "DL-META-01"),
            (a_metadata(format=Format(provider="orc")), "DL-META-03"),
            (a_metadata(format=Format(options={"a": "b"})), "DL-META-03"),
            (a_metadata(name="n\x00"), "DL-META-04"),
            (a_metadata(description="\ud800"), "DL-META-04"),
            (a_metadata(created_time="today"), "DL-META-04"),
            (a_metadata(configuration={"a": None}), "DL-META-05"),
            (a_metadata(configuration={"a": 1}), "DL-META-05"),
            (a_metadata(partition_columns=["ghost"]), "DL-META-07"),
            (a_metadata(partition_columns=["ID"]), "DL-META-07"),
            (
                a_metadata(a_field("a"), a_field("b"), partition_columns=["a", "a"]),
                "DL-META-07",
            ),
            (a_metadata(id="another"), "DL-META-08"),
            (a_metadata(configuration={"delta.feature.x": "supported"}), "DL-META-09"),
            (a_metadata(configuration={"delta.minReaderVersion": "1"}), "DL-META-09"),
            (a_metadata(configuration={"delta.ignoreProtocolDefaults": "true"}), "DL-META-09"),
            (
                a_metadata(
                    a_field("a"),
                    a_field("s", {"type": "struct", "fields": [a_field("x")]}),
                    partition_columns=["s"],
                ),
                "DL-META-10",
            ),
            (a_metadata(a_field("a"), partition_columns=["a"]), "DL-META-10"),
            (a_metadata(schema_string=""), "DL-SCH-01"),
            (a_metadata(schema_string='{"type":"struct",\n"fields":[]}'), "DL-SCH-01"),
            (a_metadata(a_field("a", "int64")), "DL-SCH-02"),
            (a_metadata(a_field("a", "decimal(40,1)")), "DL-SCH-02"),
            (a_metadata(a_field("a"), a_field("A")), "DL-SCH-05"),
            (a_metadata(a_field("a", "timestamp_ntz")), "DL-SCH-07"),
            (a_metadata(a_field("a", "variant")), "DL-SCH-07"),
            (a_metadata(a_field("a", **{"delta.invariants": "{}"})), "DL-SCH-08"),
            (a_metadata(a_field("a", CURRENT_DEFAULT="1")), "DL-SCH-08"),
            (a_metadata(mapped("a", 1, "col-1")), "DL-SCH-08"),
            (a_metadata(a_field("two words")), "DL-SCH-09"),
            (with_mapping(a_field("a")), "DL-CM-01"),
            (a_metadata(configuration={"delta.columnMapping.mode": "both"}), "DL-CM-01"),
        ],
    )
    def test_a_breach_is_refused_by_its_rule(self, new, rule):
        assert rule_broken(new) == rule

    def test_another_property_of_the_same_table_is_accepted(self):
        assert validate(a_metadata(name="n", configuration={"a": "b"}, created_time=1)) == []

    def test_columns_are_accepted_where_the_protocol_has_their_features(self):
        protocol = a_protocol("invariants", "allowColumnDefaults", reader=["timestampNtz"])
        fields = [
            a_field("a", "timestamp_ntz"),
            a_field("b", CURRENT_DEFAULT="1", **{"delta.invariants": "{}"}),
        ]
        assert rules_noted(a_metadata(*fields), protocol=protocol) == set()

    def test_a_name_that_spark_would_not_write_stays_where_it_was_before(self):
        old = a_metadata(a_field("two words"))
        new = msgspec.structs.replace(old, configuration={"a": "b"})
        assert rules_noted(new, metadata=old) == {"DL-SCH-09"}

    @pytest.mark.parametrize(
        ("new", "rule"),
        [
            (a_metadata(configuration={"delta.appendOnly": "true"}), "DL-PROT-09"),
            (a_metadata(configuration={"delta.enableDeletionVectors": "true"}), "DL-PROT-09"),
            (a_metadata(a_field("id", "string")), "DL-TW-01"),
            (
                a_metadata(a_field("id"), a_field("p"), partition_columns=["p"]),
                "DL-ADD-07",
            ),
        ],
    )
    def test_what_may_be_meant_so_is_noted(self, new, rule):
        assert rules_noted(new) == {rule}

    def test_an_id_that_is_no_guid_is_noted(self):
        metadata = a_metadata(id="testId")
        assert rules_noted(metadata, metadata=metadata) == {"DL-META-02"}

    def test_column_mapping_with_ids_and_names_is_accepted(self):
        inner = {"type": "struct", "fields": [mapped("x", 2, "col-2")]}
        new = with_mapping(mapped("two words", 1, "col-1", inner), mapped("x", 3, "col-3"))
        assert rules_noted(new, protocol=MAPPING) <= {"DL-TW-01"}

    @pytest.mark.parametrize(
        ("new", "rule"),
        [
            (with_mapping(mapped("a", 1, "c1"), a_field("b")), "DL-CM-02"),
            (with_mapping(mapped("a", 1, "c1"), mapped("b", 2)), "DL-CM-02"),
            (with_mapping(mapped("a", 1, "c1"), mapped("b", 1, "c2")), "DL-CM-02"),
            (with_mapping(mapped("a", 1, "c1"), mapped("b", 2, "c1")), "DL-CM-02"),
            (with_mapping(mapped("a", 10, "c1")), "DL-CM-03"),
            (with_mapping(mapped("a", 1, "c1"), largest="many"), "DL-CM-03"),
            (with_mapping(mapped("a", 1, "c1"), largest="4"), "DL-CM-03"),
        ],
    )
    def test_column_mapping_that_is_not_whole_is_refused(self, new, rule):
        old = with_mapping(mapped("a", 1, "c1"), largest="5")
        assert rule_broken(new, protocol=MAPPING, metadata=old) == rule


class TestDomains:
    def test_a_domain_is_accepted(self):
        assert validate(a_domain(), a_domain("b", removed=True), protocol=DOMAINS) == []

    @pytest.mark.parametrize(
        ("domains", "rule"),
        [
            ([a_domain(configuration={})], "DL-DOM-01"),
            ([a_domain(removed=0)], "DL-DOM-01"),
            ([a_domain("a"), a_domain("a", removed=True)], "DL-CMT-10"),
            ([a_domain("delta.clustering")], "DL-CLU-01"),
            ([a_domain("delta.clustering", configuration="x")], "DL-CLU-01"),
            (
                [a_domain("delta.clustering", configuration='{"clusteringColumns":["a"]}')],
                "DL-CLU-01",
            ),
        ],
    )
    def test_a_breach_is_refused_by_its_rule(self, domains, rule):
        assert rule_broken(*domains, protocol=DOMAINS) == rule

    def test_the_protocol_must_have_the_feature(self):
        assert rule_broken(a_domain()) == "DL-DOM-02"

    def test_clustering_needs_its_feature_and_an_unpartitioned_table(self):
        columns = json.dumps({"clusteringColumns": [["id"]]})
        domain = a_domain("delta.clustering", configuration=columns)
        assert validate(domain, protocol=DOMAINS) == []
        assert rule_broken(domain, protocol=a_protocol("domainMetadata")) == "DL-CLU-01"
        table = partitioned("long")
        assert rule_broken(domain, protocol=DOMAINS, metadata=table) == "DL-CLU-01"

    def test_an_unknown_domain_of_delta_is_noted(self):
        assert rules_noted(a_domain("delta.someday"), protocol=DOMAINS) == {"DL-DOM-03"}


def test_a_schema_change_applies_to_the_files_of_the_same_commit():
    new = a_metadata(a_field("id"), a_field("p"), partition_columns=["p"])
    assert rule_broken(new, an_add()) == "DL-ADD-07"
    assert rules_noted(new, an_add(partition_values={"p": "1"})) == {"DL-ADD-07"}


#: tables of the corpora that the reference writer of today would refuse, too
REFUSED = {
    "golden/data-reader-absolute-paths-escaped-chars": "DL-CMT-06",
    "golden/deltalog-state-reconstruction-without-metadata": "DL-CMT-06",
    "golden/deltalog-state-reconstruction-without-protocol": "DL-CMT-06",
    # cdc on a table whose protocol has no change data feed
    "golden/deltalog-getChanges": "DL-CDC-04",
    # column metadata written by clients that did not know its feature
    "spark/delta__dbr_8_0_non_generated_columns": "DL-SCH-08",
    "spark/delta__identity_test_written_by_version_5": "DL-SCH-08",
}


@pytest.mark.corpora
def test_commits_of_real_tables_are_accepted_or_refused_for_a_reason(corpora: Path):
    refused = {}
    for log in sorted(corpora.rglob("_delta_log")):
        error = first_refusal(log)
        if error is None or isinstance(error, UnsupportedTableError):
            continue
        refused[str(log.parent.relative_to(corpora))] = error.rule
    # without a schema, or with a reader version that does not exist
    unreadable = {"DL-SCH-01", "DL-PROT-02"}
    assert {name: rule for name, rule in refused.items() if rule not in unreadable} == REFUSED


def first_refusal(log: Path) -> PermanentError | None:
    protocol: TableProtocol | None = None
    metadata: MetaData | None = None
    for path in sorted(path for path in log.glob("*.json") if path.stem.isdecimal()):
        actions = commit_file.decode(path.read_bytes()).actions
        version = int(path.stem)
        if version and protocol is None:
            return None  # the log begins with a checkpoint
        try:
            validate_commit(actions, version=version, protocol=protocol, metadata=metadata)
        except PermanentError as exc:
            return exc
        protocol = next((a for a in actions if isinstance(a, TableProtocol)), protocol)
        metadata = next((a for a in actions if isinstance(a, MetaData)), metadata)
    return None


def test_what_the_strict_decoder_accepts_needs_no_type_check_of_ours():
    line = b'{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1760000000000,'
    (decoded,) = commit_file.decode(line + b'"dataChange":true}}\n', strict=True).actions
    assert isinstance(decoded, AddFile)
    assert validate(decoded, metadata=a_metadata(schema_string=a_schema())) == []
