from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirror_assets.delta import commit_file
from mirror_assets.delta.actions import MetaData
from mirror_assets.delta.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    check_schema,
    parse_schema,
    physical_name,
    walk_fields,
    walk_types,
)
from mirror_assets.errors import RuleViolationError
from mirror_assets.findings import Severity
from mirror_assets_tests.delta.samples import a_field, a_schema

if TYPE_CHECKING:
    from pathlib import Path

ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}


def nested(*fields):
    return {"type": "struct", "fields": list(fields)}


def test_columns_keep_order_nullability_and_metadata_verbatim():
    metadata = {"comment": "é", "numbers": [1, 2.5], "nested": {"unknown": None}}
    schema = parse_schema(a_schema(a_field("b"), a_field("a", "string", **metadata)))
    assert schema.names == ("b", "a")
    column = schema.find("a")
    assert column is not None
    assert column.nullable
    assert column.metadata == metadata


def test_nested_types_are_read():
    schema = parse_schema(a_schema(a_field("a", ARRAY), a_field("m", MAP)))
    assert schema.fields[0].type == ArrayType(PrimitiveType("long"), contains_null=True)
    expected = MapType(PrimitiveType("string"), PrimitiveType("long"), value_contains_null=False)
    assert schema.fields[1].type == expected


@pytest.mark.parametrize(
    "name",
    [
        "decimal(10, 4)",
        "decimal(38,38)",
        "decimal",
        "interval year to month",
        "geometry(4326)",
        "string collate UTF8_LCASE",
        "null",
        "variant",
    ],
)
def test_types_of_real_tables_are_accepted(name):
    assert parse_schema(a_schema(a_field("c", name))).fields[0].type == PrimitiveType(name)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "DL-SCH-01"),
        ("{", "DL-SCH-01"),
        ('"long"', "DL-SCH-01"),
        (json.dumps(ARRAY), "DL-SCH-01"),
        ('{"type":"struct"}', "DL-SCH-01"),
        (a_schema(a_field("c", "int64")), "DL-SCH-02"),
        (a_schema(a_field("c", "decimal(1)")), "DL-SCH-02"),
        (a_schema(a_field("c", 7)), "DL-SCH-02"),
        (a_schema(a_field("c", {"type": "set"})), "DL-SCH-02"),
        (a_schema({"name": "c", "type": "long", "nullable": True}), "DL-SCH-03"),
        (a_schema({"name": "c", "type": "long", "metadata": {}}), "DL-SCH-03"),
        (a_schema({"name": 1, "type": "long", "nullable": True, "metadata": {}}), "DL-SCH-03"),
        (a_schema(a_field("c", {"type": "array", "elementType": "long"})), "DL-SCH-04"),
        (
            a_schema(a_field("c", {"type": "map", "keyType": "long", "valueType": "long"})),
            "DL-SCH-04",
        ),
    ],
)
def test_what_is_no_schema_is_refused_by_its_rule(text, rule):
    with pytest.raises(RuleViolationError) as caught:
        parse_schema(text)
    assert caught.value.rule == rule


def test_a_schema_without_bottom_is_refused():
    deep = '{"type":"array","containsNull":true,"elementType":' * 900 + '"long"' + "}" * 900
    text = '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":%s}]}'
    with pytest.raises(RuleViolationError, match="nested"):
        parse_schema(text % deep)


def test_the_message_names_the_nested_column():
    with pytest.raises(RuleViolationError, match=r"'outer\.inner'"):
        parse_schema(a_schema(a_field("outer", nested(a_field("inner", "int64")))))


def test_the_physical_name_is_that_of_column_mapping_if_there_is_one():
    mapped = a_field("a", **{"delta.columnMapping.physicalName": "col-1"})
    schema = parse_schema(a_schema(mapped, a_field("b")))
    assert [physical_name(member) for member in schema.fields] == ["col-1", "b"]


def test_walking_reaches_fields_and_types_inside_arrays_and_maps():
    inner = nested(a_field("x", "date"))
    array = {"type": "array", "elementType": inner, "containsNull": True}
    schema = parse_schema(a_schema(a_field("a", array), a_field("m", MAP)))
    paths = [path for path, _ in walk_fields(schema)]
    assert paths == [("a",), ("a", "element", "x"), ("m",)]
    assert {kind.name for _, kind in walk_types(schema)} == {"date", "string", "long"}


@pytest.mark.parametrize(
    ("fields", "rule", "severity"),
    [
        ([a_field("a"), a_field("A")], "DL-SCH-05", Severity.ERROR),
        ([a_field("s", nested(a_field("x"), a_field("X")))], "DL-SCH-05", Severity.ERROR),
        ([a_field("d", "decimal(39,0)")], "DL-SCH-02", Severity.ERROR),
        ([a_field("d", "decimal(5,6)")], "DL-SCH-02", Severity.ERROR),
        ([a_field("g", "geometry(4326)")], "DL-SCH-02", Severity.WARNING),
        ([a_field("two words")], "DL-SCH-09", Severity.WARNING),
    ],
)
def test_a_flaw_of_the_schema_is_found(fields, rule, severity):
    (finding,) = check_schema(parse_schema(a_schema(*fields)))
    assert (finding.rule, finding.severity) == (rule, severity)


def test_equal_names_in_different_structs_are_no_flaw():
    schema = parse_schema(a_schema(a_field("a"), a_field("s", nested(a_field("a")))))
    assert not list(check_schema(schema))


def test_column_mapping_allows_any_name():
    schema = parse_schema(a_schema(a_field("two words; {three}")))
    assert not list(check_schema(schema, column_mapping=True))


@pytest.mark.corpora
def test_schemas_of_real_tables_are_read_unless_they_are_empty(corpora: Path):
    read = 0
    for path in sorted(corpora.rglob("_delta_log/*.json")):
        if not path.stem.isdecimal():
            continue
        for action in commit_file.decode(path.read_bytes()).actions:
            # tables of the first Delta releases, and of tests, have a metaData without schema
            if isinstance(action, MetaData) and action.schema_string:
                parse_schema(action.schema_string)
                read += 1
    assert read
