"""Every type through writer, SQL and mirror to three readers; statistics beside Delta Spark's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mirror_assets_tests.pipeline.lakehouse import TABLE, by_all

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets_tests.pipeline.lakehouse import Lakehouse

#: a column of each type: an expression for the rows 0, 1 and 2; row 2 is null everywhere
COLUMNS = {
    "a_byte": "cast(n as tinyint)",
    "a_short": "cast(-n as smallint)",
    "an_int": "cast(n * 1000 as int)",
    "a_long": "n * 10000000000",
    "a_float": "cast(n + 0.1 as float)",
    "a_double": "cast(n - 0.5 as double)",
    "zeros": "cast(0 as double)",
    "a_decimal": "cast(n + 0.25 as decimal(9,2))",
    "wide_decimal": "cast('12345678901234567890123456.123456789012' as decimal(38,12))",
    "a_string": "concat('text ', n)",
    "long_ascii": "concat(repeat('z', 40), n)",
    "long_emoji": "concat(repeat('a', 32), '😀', n)",
    "empty": "''",
    "a_bool": "n = 1",
    "a_binary": "cast('bytes' as binary)",
    "a_date": "date_add(date'1969-12-30', cast(n as int))",
    "a_timestamp": "timestamp'2026-01-01 10:00:00.123456Z' + make_interval(0, 0, 0, 0, n)",
    "before_1970": "timestamp'1950-06-01 00:00:00.999999Z'",
    "a_timestamp_ntz": "timestamp_ntz'2026-01-01 10:00:00.5'",
    "a_struct": "named_struct('x', n, 'y', named_struct('z', concat('in ', n)))",
    "an_array": "array(n, null)",
    "a_map": "map('k', n)",
    "all_null": "cast(null as int)",
}
#: a footer does not tell how many arrays and maps are null
NOT_KNOWN = {"an_array", "a_map"}


def every_type(lakehouse: Lakehouse) -> Any:
    columns = [f"case when n < 2 then {text} end as {name}" for name, text in COLUMNS.items()]
    return lakehouse.spark.range(3).toDF("n").selectExpr("n", *columns).coalesce(1)


def test_every_type_nested_and_null_comes_back_by_three_readers(lakehouse: Lakehouse) -> None:
    frame = every_type(lakehouse)
    lakehouse.write(frame)
    lakehouse.mirror()

    plain = [name for name in ("n", *COLUMNS) if name not in ("a_map", "a_struct")]
    columns = ", ".join([*plain, "a_struct.y.z as z", "cast(a_struct.x as bigint) as x"])
    seen = by_all(lakehouse.spark, lakehouse.place(), columns)
    assert len(seen[2]) == 3
    assert _comparable(seen[0]) == _comparable(seen[1]) == _comparable(seen[2])


def test_statistics_are_those_of_delta_spark(lakehouse: Lakehouse, tmp_path: Path) -> None:
    frame = every_type(lakehouse)
    lakehouse.write(frame)
    frame.write.format("delta").save(str(tmp_path / "peer"))

    ours = lakehouse.statistics()[0]
    theirs = _statistics_of_delta(tmp_path / "peer")
    for name in NOT_KNOWN:
        assert name not in ours["nullCount"]
        theirs["nullCount"].pop(name)
    assert ours == theirs
    # a float would lose digits that a reader compares with
    add = next(lakehouse.reader.live_files(TABLE))
    assert "12345678901234567890123456.123456789012" in (add.stats or "")


def test_statistics_cover_the_columns_that_the_table_asks_for(
    lakehouse: Lakehouse, tmp_path: Path
) -> None:
    many = lakehouse.spark.range(1).selectExpr(
        "named_struct('a', 1, 'b', 2) as s", *(f"{n} as c{n}" for n in range(40))
    )
    for number, (key, value) in enumerate(
        [
            ("delta.appendOnly", "false"),
            ("delta.dataSkippingNumIndexedCols", "3"),
            ("delta.dataSkippingNumIndexedCols", "-1"),
            ("delta.dataSkippingStatsColumns", "c39,s.b"),
        ]
    ):
        name, peer = f"sales.t{number}", tmp_path / f"peer{number}"
        lakehouse.write(many, name, properties={key: value})
        many.write.format("delta").option(key, value).save(str(peer))
        assert lakehouse.statistics(name)[0] == _statistics_of_delta(peer), (key, value)


def test_values_without_usable_bounds_have_none_and_hide_no_row(lakehouse: Lakehouse) -> None:
    rows = "select * from values (1, double('NaN')), (2, 1.0D), (3, double('Infinity')) t(id, x)"
    lakehouse.write(lakehouse.spark.sql(rows).coalesce(1))
    lakehouse.mirror()
    found = lakehouse.spark.read.format("delta").load(str(lakehouse.place()))
    assert found.where("x > 5").count() == 2
    assert "x" not in lakehouse.statistics()[0]["maxValues"]
    assert lakehouse.statistics()[0]["nullCount"] == {"id": 0, "x": 0}


def test_a_timestamp_partition_is_written_as_delta_writes_it(lakehouse: Lakehouse) -> None:
    frame = lakehouse.spark.sql(
        "select 1 as id, timestamp'2026-01-01 10:00:00.000005Z' as t, date'2026-02-03' as d, "
        "cast(1.50 as decimal(5,2)) as m, true as b"
    )
    lakehouse.write(frame, partition_by=["t", "d", "m", "b"])
    lakehouse.mirror()
    assert next(lakehouse.reader.live_files(TABLE)).partition_values == {
        "t": "2026-01-01T10:00:00.000005Z",
        "d": "2026-02-03",
        "m": "1.50",
        "b": "true",
    }
    seen = by_all(lakehouse.spark, lakehouse.place(), "id, t, d, m, b")
    assert _comparable(seen[0]) == _comparable(seen[1]) == _comparable(seen[2])


def _statistics_of_delta(table: Path) -> dict[str, Any]:
    lines = (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    return json.loads(next(a["add"]["stats"] for a in actions if "add" in a))


def _comparable(rows: list[tuple[Any, ...]]) -> list[list[str]]:
    """Readers differ in the Python type of a time zone only."""
    return [
        [str(v.replace(tzinfo=None) if getattr(v, "tzinfo", None) else v) for v in row]
        for row in rows
    ]
