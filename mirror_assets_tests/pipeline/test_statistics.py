"""Footers to statistics, and names of files, without a JVM."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirror_assets.delta.locations import normalise_location
from mirror_assets.delta.schema import PrimitiveType, parse_schema
from mirror_assets.errors import WriteRefusedError
from mirror_assets.pipeline.places import (
    add_path,
    file_name,
    partition_values,
    shown_by_spark,
    spark_path,
)
from mirror_assets.pipeline.statistics import StatisticsPlan, footer_statistics
from mirror_assets_tests.delta.samples import a_field, a_schema

LOW = "a" * 32


def statistics(kind: str, values: list[Any], arrow: pa.DataType, **options: Any) -> dict[str, Any]:
    file = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array(values, arrow)}), file, **options)
    plan = StatisticsPlan.of(parse_schema(a_schema(a_field("c", kind))), [], {})
    text = footer_statistics(pq.read_metadata(file), plan).text
    return json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize(
    ("kind", "arrow", "values", "low", "high"),
    [
        ("string", pa.string(), [LOW + "bc"], LOW, LOW + "\x7f"),
        ("string", pa.string(), [LOW + "😀"], LOW, LOW + "\U0010ffff"),
        ("string", pa.string(), [LOW + "\U0010ffff" + "z"], LOW, LOW + "\U0010ffff\x7f"),
        ("string", pa.string(), [LOW + "\U0010ffff"], LOW, LOW + "\U0010ffff"),
        ("string", pa.string(), [LOW], LOW, LOW),
        (
            "decimal(38,12)",
            pa.decimal128(38, 12),
            [Decimal("-12345678901234567890123456.123456789012"), Decimal("0.5")],
            Decimal("-12345678901234567890123456.123456789012"),
            Decimal("0.500000000000"),
        ),
        ("decimal(5,0)", pa.decimal128(5, 0), [Decimal(-7), Decimal(3)], -7, 3),
        ("double", pa.float64(), [-0.0, 0.0], Decimal("0.0"), Decimal("0.0")),
        ("date", pa.int32(), [-1, 0], "1969-12-31", "1970-01-01"),
        (
            "timestamp",
            pa.int64(),
            [-1, 1_999],
            "1969-12-31T23:59:59.999Z",
            "1970-01-01T00:00:00.001Z",
        ),
    ],
)
def test_bounds_hold_every_value_and_keep_every_digit(
    kind: str, arrow: pa.DataType, values: list[Any], low: object, high: object
) -> None:
    found = statistics(kind, values, arrow)
    assert (found["minValues"]["c"], found["maxValues"]["c"]) == (low, high)


def test_what_cannot_be_said_is_left_out() -> None:
    for kind, arrow, values in [
        ("boolean", pa.bool_(), [True]),
        ("binary", pa.binary(), [b"x"]),
        ("date", pa.int32(), [4_000_000]),
        ("double", pa.float64(), [float("inf")]),
        ("long", pa.int64(), [None]),
    ]:
        found = statistics(kind, values, arrow)
        assert found["maxValues"] == {}
        assert found["nullCount"] == {"c": int(values == [None])}


def test_bounds_of_several_row_groups_are_those_of_all_or_none() -> None:
    values = [5, 9, None, None, 1, 2]
    found = statistics("long", values, pa.int64(), row_group_size=2)
    assert (found["minValues"], found["maxValues"]) == ({"c": 1}, {"c": 9})
    assert (found["numRecords"], found["nullCount"]) == (6, {"c": 2})
    silent = statistics("long", values, pa.int64(), write_statistics=False)
    assert (silent["minValues"], silent["nullCount"]) == ({}, {})


def test_a_name_has_one_spelling_for_each_who_asks() -> None:
    place = normalise_location("s3://bucket/a b/t")
    assert spark_path(place, "c/p=x%3Ay") == "s3a://bucket/a b/t/c/p=x%3Ay"
    assert shown_by_spark(place, "c/p=x%3Ay é") == "s3a://bucket/a%20b/t/c/p=x%253Ay%20é"
    assert add_path("c/p=x%3Ay é") == "c/p=x%253Ay%20%C3%A9"
    assert file_name("c/p=x%253Ay%20%C3%A9", place) == "c/p=x%3Ay é"
    assert file_name("s3://bucket/a%20b/t/c/f", place) == "c/f"
    with pytest.raises(WriteRefusedError, match="does not lie below"):
        file_name("s3://other/f", place)


def test_partition_values_are_read_from_directories() -> None:
    types = {"p": PrimitiveType("string"), "t": PrimitiveType("timestamp")}
    name = "commit/p=a%2Fb/t=2026-01-01 10%3A00%3A00/part-0.parquet"
    assert partition_values(name, ["t", "p"], types) == {"t": "2026-01-01T10:00:00Z", "p": "a/b"}
    null = "commit/p=__HIVE_DEFAULT_PARTITION__/t=2026-01-01 10%3A00%3A00/part-0.parquet"
    assert partition_values(null, ["p"], types) == {"p": None}
