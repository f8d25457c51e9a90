from __future__ import annotations

import pytest

from mirror_assets.delta.actions import (
    CdcFile,
)
from mirror_assets.errors import RuleViolationError
from mirror_assets_tests.delta.samples import (
    a_field,
    a_metadata,
    a_protocol,
    a_remove,
    a_vector,
    an_add,
    stats_of,
)
from mirror_assets_tests.delta.validating import (
    DOMAINS,
    MAPPING,
    VECTORS,
    VECTORS_ON,
    mapped,
    partitioned,
    rule_broken,
    rules_noted,
    validate,
    with_mapping,
)


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "part-00000-c000.snappy.parquet",
            "day=2026-01-01/part-0.parquet",
            "p=a%2520b/part-0.parquet",
            "p=é😀/part-0.parquet",
            "_p=1/part-0.parquet",
            "a/..b/c..parquet",
            "_file-not-directory.parquet",
            "s3://bucket/table/part-0.parquet",
            "file:/tmp/_delta_tests/part-0.parquet",
        ],
    )
    def test_uri_references_inside_the_table_or_absolute_are_accepted(self, path):
        assert validate(an_add(path)) == []

    @pytest.mark.parametrize(
        ("path", "rule"),
        [
            ("", "DL-ADD-02"),
            ("p=100%/a.parquet", "DL-ADD-02"),
            ("p=%zz/a.parquet", "DL-ADD-02"),
            ("../a.parquet", "DL-ADD-02"),
            ("a/../../b.parquet", "DL-ADD-02"),
            ("a/%2e%2E/b.parquet", "DL-ADD-02"),
            ("a%2F..%2Fb.parquet", "DL-ADD-02"),
            ("a/..", "DL-ADD-02"),
            ("a%00.parquet", "DL-ADD-02"),
            ("s3://bucket/../other/a.parquet", "DL-ADD-02"),
            ("two words.parquet", "DL-ADD-03"),
            ("a\x00.parquet", "DL-ADD-03"),
            ("a\n.parquet", "DL-ADD-03"),
            ("a\nb.parquet", "DL-ADD-03"),
            ("a\\b.parquet", "DL-ADD-03"),
            ("a#b.parquet", "DL-ADD-03"),
            ("a?b.parquet", "DL-ADD-03"),
            ('a"b.parquet', "DL-ADD-03"),
            ("a\ud800.parquet", "DL-ADD-03"),
            ("_delta_log/a.parquet", "DL-FILE-16"),
            ("p=1/_hidden/a.parquet", "DL-FILE-16"),
            ("_change_data/a.parquet", "DL-FILE-16"),
        ],
    )
    def test_other_paths_are_refused_by_their_rule(self, path, rule):
        assert rule_broken(an_add(path)) == rule

    def test_the_odd_name_of_a_file_that_is_there_already_may_be_kept(self):
        odd = "two words.parquet"
        new = an_add(odd, deletion_vector=a_vector(), stats=stats_of(9))
        metadata = a_metadata(configuration=VECTORS_ON)
        assert validate(a_remove(odd), new, protocol=VECTORS, metadata=metadata) == []
        assert validate(a_remove("../elsewhere.parquet")) == []


class TestAdd:
    @pytest.mark.parametrize(
        ("members", "rule"),
        [
            ({"size": -1}, "DL-ADD-01"),
            ({"size": 1.5}, "DL-ADD-01"),
            ({"size": True}, "DL-ADD-01"),
            ({"size": 2**63}, "DL-ADD-01"),
            ({"modification_time": "now"}, "DL-ADD-01"),
            ({"data_change": 1}, "DL-ADD-01"),
            ({"path": None}, "DL-ADD-01"),
            ({"partition_values": None}, "DL-ADD-01"),
            ({"partition_values": {"p": "1"}}, "DL-ADD-07"),
            ({"tags": {"a": 1}}, "DL-ADD-10"),
            ({"tags": ["a"]}, "DL-ADD-10"),
            ({"base_row_id": -1}, "DL-ADD-11"),
            ({"default_row_commit_version": "1"}, "DL-ADD-11"),
            ({"clustering_provider": 1}, "DL-ADD-12"),
        ],
    )
    def test_a_breach_is_refused_by_its_rule(self, members, rule):
        assert rule_broken(an_add(**members)) == rule

    def test_tags_may_be_null_and_row_ids_zero(self):
        add = an_add(tags={"a": None, "b": ""}, base_row_id=0, default_row_commit_version=0)
        assert validate(add) == []

    @pytest.mark.parametrize("time", [1_760_000_000, 1_760_000_000_000_000, 0])
    def test_a_time_that_is_not_in_milliseconds_is_noted(self, time):
        assert rules_noted(an_add(modification_time=time)) == {"DL-ADD-13"}

    def test_the_message_shows_the_path_and_cuts_what_is_long(self):
        path = "x" * 500 + " .parquet"
        with pytest.raises(RuleViolationError) as caught:
            validate(an_add(path))
        assert "xxx" in caught.value.message
        assert len(caught.value.message) < 250

    def test_no_file_is_added_while_void_hides_in_an_array(self):
        array = {"type": "array", "elementType": "void", "containsNull": True}
        assert rule_broken(an_add(), metadata=a_metadata(a_field("a", array))) == "DL-SCH-06"
        assert rule_broken(an_add(), metadata=a_metadata(a_field("a", "void"))) == "DL-SCH-06"
        harmless = a_metadata(a_field("a", "void"), a_field("value", "void"), a_field("b"))
        assert validate(an_add(), metadata=harmless) == []

    def test_a_file_is_named_once(self):
        assert rule_broken(an_add("a"), an_add("a")) == "DL-REC-02"
        assert rule_broken(a_remove("a"), a_remove("a")) == "DL-REC-02"
        assert rule_broken(a_remove("a"), an_add("a")) == "DL-REC-03"

    def test_a_table_whose_schema_cannot_be_read_still_takes_files(self):
        old = a_metadata(schema_string="", partition_columns=["p"])
        assert validate(an_add(partition_values={"p": "x"}), metadata=old) == []


class TestPartitionValues:
    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            ("string", "any/ text\n"),
            ("byte", "-128"),
            ("long", "9223372036854775807"),
            ("double", "1.0E10"),
            ("float", "NaN"),
            ("double", "-Infinity"),
            ("decimal(5,2)", "123.45"),
            ("decimal(5, 2)", "-1.500"),
            ("decimal(5,2)", "0E-10"),
            ("date", "2026-02-28"),
            ("boolean", "true"),
            ("timestamp", "2026-01-01 00:00:00"),
            ("timestamp", "2026-01-01 00:00:00.123456"),
            ("timestamp", "2026-01-01T00:00:00.123456Z"),
            ("timestamp_ntz", "2026-01-01 00:00:00.5"),
            ("binary", "\u0001\u00ff"),
            ("integer", None),
            ("integer", ""),
        ],
    )
    def test_the_text_of_a_value_is_accepted(self, kind, value):
        assert validate(an_add(partition_values={"p": value}), metadata=partitioned(kind)) == []

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            ("string", 5),
            ("string", ["a"]),
            ("string", "\ud800"),
            ("string", "__HIVE_DEFAULT_PARTITION__"),
            ("byte", "128"),
            ("integer", "1.0"),
            ("integer", "٣"),
            ("long", "9223372036854775808"),
            ("double", "fast"),
            ("decimal(5,2)", "1234.5"),
            ("decimal(5,2)", "1.234"),
            ("date", "2026-13-01"),
            ("date", "01.02.2026"),
            ("boolean", "True"),
            ("timestamp", "2026-01-01"),
            ("timestamp", "2026-01-01T00:00:00"),
            ("timestamp_ntz", "2026-01-01T00:00:00Z"),
        ],
    )
    def test_what_the_column_cannot_be_is_refused(self, kind, value):
        files = [an_add("a", partition_values={"p": None}), an_add(partition_values={"p": value})]
        assert rule_broken(*files, metadata=partitioned(kind)) == "DL-ADD-08"

    @pytest.mark.parametrize("values", [{}, {"P": "1"}, {"p": "1", "q": "1"}])
    def test_keys_are_exactly_the_partition_columns(self, values):
        add = an_add(partition_values=values)
        assert rule_broken(add, metadata=partitioned("long")) == "DL-ADD-07"

    def test_under_column_mapping_keys_are_physical_names(self):
        table = with_mapping(
            mapped("id", 1, "c1"), mapped("p", 2, "c2", "date"), partition_columns=["p"]
        )
        good = an_add(partition_values={"c2": "2026-01-01"})
        assert validate(good, protocol=MAPPING, metadata=table) == []
        bad = an_add(partition_values={"p": "2026-01-01"})
        assert rule_broken(bad, protocol=MAPPING, metadata=table) == "DL-ADD-07"


class TestStats:
    TABLE = a_metadata(
        a_field("id"), a_field("s", "string"), a_field("a", {"type": "struct", "fields": []})
    )

    @pytest.mark.parametrize(
        "stats",
        [
            "{}",
            stats_of(0),
            stats_of(3, tightBounds=True, nullCount={"id": 3, "s": None, "a": {"x": 9}}),
            stats_of(3, tightBounds=False, nullCount={"id": 4}),
            stats_of(3, minValues={"id": 1, "s": "z"}, maxValues={"id": 1, "s": "a"}),
            stats_of(3, minValues={"id": 1}, maxValues={}),
            stats_of(3, minValues={"gone": "x"}, maxValues={"gone": 5}),
            stats_of(3, unknown=[1.5, None]),
        ],
    )
    def test_statistics_of_any_extent_are_accepted(self, stats):
        assert validate(an_add(stats=stats), metadata=self.TABLE) == []

    @pytest.mark.parametrize(
        ("stats", "rule"),
        [
            ("", "DL-STAT-01"),
            ("null", "DL-STAT-01"),
            ("[]", "DL-STAT-01"),
            ("{", "DL-STAT-01"),
            ('{"minValues":{"s":NaN}}', "DL-STAT-01"),
            ('{"x":"\ud800"}', "DL-STAT-01"),
            ({"numRecords": 1}, "DL-STAT-01"),
            (stats_of(-1), "DL-STAT-02"),
            (stats_of(1.0), "DL-STAT-02"),
            (stats_of("1"), "DL-STAT-02"),
            (stats_of(True), "DL-STAT-02"),
            (stats_of(2**63), "DL-STAT-02"),
            (stats_of(1, tightBounds="yes"), "DL-STAT-03"),
            (stats_of(1, nullCount={"id": "0"}), "DL-STAT-04"),
            (stats_of(1, nullCount={"id": -1}), "DL-STAT-04"),
            (stats_of(1, nullCount=[]), "DL-STAT-04"),
            (stats_of(1, nullCount={"id": 2}), "DL-STAT-05"),
            (stats_of(1, nullCount={"id": 2, "s": None}), "DL-STAT-05"),
            (stats_of(1, minValues={"id": 2}, maxValues={"id": 1}), "DL-STAT-05"),
            (stats_of(1, minValues={"id": "2"}), "DL-STAT-05"),
        ],
    )
    def test_a_breach_is_refused_by_its_rule(self, stats, rule):
        assert rule_broken(an_add(stats=stats), metadata=self.TABLE) == rule

    @pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "é", ""])
    def test_columns_of_any_name_have_statistics(self, name):
        table = a_metadata(a_field(name), a_field("other"))
        stats = stats_of(1, nullCount={name: 0, "other": 1}, minValues={name: 1})
        assert validate(an_add(stats=stats), metadata=table) == []

    def test_a_feature_may_make_the_number_of_records_mandatory(self):
        assert rule_broken(an_add(), protocol=DOMAINS) == "DL-STAT-02"
        assert rule_broken(an_add(stats="{}"), protocol=DOMAINS) == "DL-STAT-02"
        assert validate(an_add(stats=stats_of(1)), protocol=DOMAINS) == []


class TestDeletionVectors:
    ON = a_metadata(configuration=VECTORS_ON)

    @pytest.mark.parametrize(
        "vector",
        [
            a_vector(),
            a_vector(offset=None),
            a_vector(
                storage_type="i", path_or_inline_dv="0123456789", offset=None, size_in_bytes=7
            ),
            a_vector(storage_type="p", path_or_inline_dv="s3://b/d.bin"),
        ],
    )
    def test_a_descriptor_is_accepted(self, vector):
        add = an_add(deletion_vector=vector, stats=stats_of(2))
        assert validate(add, protocol=VECTORS, metadata=self.ON) == []

    @pytest.mark.parametrize(
        ("vector", "rule"),
        [
            (a_vector(storage_type="r"), "DL-DV-01"),
            (a_vector(path_or_inline_dv=None), "DL-DV-01"),
            (a_vector(size_in_bytes=2**31), "DL-DV-01"),
            (a_vector(cardinality=-1), "DL-DV-01"),
            (a_vector(offset="1"), "DL-DV-01"),
            (a_vector(path_or_inline_dv="short"), "DL-DV-04"),
            (a_vector(path_or_inline_dv="a b" * 10), "DL-DV-04"),
            (a_vector(storage_type="i", path_or_inline_dv="0123456789"), "DL-DV-04"),
            (
                a_vector(storage_type="i", path_or_inline_dv="01234", offset=None),
                "DL-DV-04",
            ),
            (a_vector(storage_type="p", path_or_inline_dv="d.bin"), "DL-DV-04"),
            (a_vector(cardinality=3), "DL-DV-06"),
        ],
    )
    def test_a_broken_descriptor_is_refused(self, vector, rule):
        add = an_add(deletion_vector=vector, stats=stats_of(2))
        assert rule_broken(add, protocol=VECTORS, metadata=self.ON) == rule

    @pytest.mark.parametrize("stats", [None, "{}"])
    def test_the_number_of_records_is_mandatory(self, stats):
        add = an_add(deletion_vector=a_vector(), stats=stats)
        assert rule_broken(add, protocol=VECTORS, metadata=self.ON) == "DL-DV-06"

    def test_the_protocol_must_have_the_feature(self):
        add = an_add(deletion_vector=a_vector(), stats=stats_of(2))
        assert rule_broken(add, metadata=self.ON) == "DL-DV-02"
        remove = a_remove(deletion_vector=a_vector())
        assert rule_broken(remove, metadata=self.ON) == "DL-DV-02"

    def test_only_a_table_that_enables_them_gets_new_ones(self):
        add = an_add(deletion_vector=a_vector(), stats=stats_of(2))
        assert rule_broken(a_remove(), add, protocol=VECTORS) == "DL-DV-02"
        assert rules_noted(add, protocol=VECTORS) == {"DL-DV-02"}
        assert validate(a_remove(), add, protocol=VECTORS, metadata=self.ON) == []


class TestRemove:
    @pytest.mark.parametrize(
        ("members", "rule"),
        [
            ({"path": ""}, "DL-REM-01"),
            ({"path": "a\x00"}, "DL-REM-01"),
            ({"data_change": None}, "DL-REM-01"),
            ({"deletion_timestamp": 1.5}, "DL-REM-01"),
            ({"size": -1}, "DL-REM-01"),
            ({"extended_file_metadata": True}, "DL-REM-03"),
            ({"extended_file_metadata": True, "size": 1}, "DL-REM-03"),
            ({"tags": {"a": 1}}, "DL-ADD-10"),
            ({"base_row_id": "1"}, "DL-REM-05"),
        ],
    )
    def test_a_breach_is_refused_by_its_rule(self, members, rule):
        assert rule_broken(a_remove(**members)) == rule

    def test_extended_metadata_that_is_there_is_accepted(self):
        assert validate(a_remove(extended_file_metadata=True, size=1, partition_values={})) == []

    def test_a_remove_without_time_is_noted(self):
        assert rules_noted(a_remove(deletion_timestamp=None)) == {"DL-REM-02"}

    def test_an_append_only_table_loses_no_data_but_may_be_rearranged(self):
        protocol = a_protocol("appendOnly")
        table = a_metadata(configuration={"delta.appendOnly": "true"})
        assert rule_broken(a_remove(), protocol=protocol, metadata=table) == "DL-AO-01"
        assert validate(a_remove(data_change=False), protocol=protocol, metadata=table) == []
        assert validate(a_remove(), protocol=protocol) == []


class TestCdc:
    PROTOCOL = a_protocol("changeDataFeed")
    TABLE = a_metadata(configuration={"delta.enableChangeDataFeed": "true"})

    def cdc(self, **members):
        defaults = {
            "path": "_change_data/cdc-0.parquet",
            "partition_values": {},
            "size": 1,
            "data_change": False,
        }
        return CdcFile(**defaults | members)

    def test_a_change_file_is_accepted(self):
        assert validate(self.cdc(), protocol=self.PROTOCOL, metadata=self.TABLE) == []

    @pytest.mark.parametrize(
        ("members", "rule"),
        [
            ({"size": None}, "DL-CDC-01"),
            ({"data_change": True}, "DL-CDC-02"),
            ({"path": "cdc-0.parquet"}, "DL-FILE-16"),
            ({"path": "_change_data/../x"}, "DL-ADD-02"),
            ({"partition_values": {"p": "1"}}, "DL-ADD-07"),
        ],
    )
    def test_a_breach_is_refused_by_its_rule(self, members, rule):
        cdc = self.cdc(**members)
        assert rule_broken(cdc, protocol=self.PROTOCOL, metadata=self.TABLE) == rule

    def test_the_protocol_must_have_the_feature_and_the_table_should_enable_it(self):
        assert rule_broken(self.cdc()) == "DL-CDC-04"
        assert rules_noted(self.cdc(), protocol=self.PROTOCOL) == {"DL-CDF-01"}
