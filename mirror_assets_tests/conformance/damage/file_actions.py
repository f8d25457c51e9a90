"""Damage to adds, removes and statistics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mirror_assets_tests.conformance.damage.kinds import DAMAGES, damage, setting, twice
from mirror_assets_tests.conformance.logs import CHECKPOINT, HEAD, NOW_MS, MemoryLog, Row


def in_add(rule: str, name: str, /, **members: Any) -> None:
    """Damage to the add of the newest commit."""
    DAMAGES[name] = (rule, lambda log: log.edit(HEAD, "add", setting(**members)))


in_add("DL-ADD-01", "an_add_has_no_size", size=None)
in_add("DL-ADD-01", "an_add_has_no_path", path=None)
in_add("DL-ADD-01", "a_size_is_negative", size=-5)
in_add("DL-ADD-01", "data_change_is_a_text", dataChange="yes")
in_add("DL-CMT-14", "a_size_is_a_text", size="1006")
in_add("DL-CMT-14", "a_size_has_a_decimal_point", size=1006.0)
in_add("DL-ADD-02", "a_path_has_a_bad_escape", path="part-%zz.parquet")
in_add("DL-ADD-02", "a_path_leads_out_of_the_table", path="../part.parquet")
in_add("DL-ADD-02", "a_path_ends_in_half_an_escape", path="part-%2")
in_add("DL-ADD-03", "a_path_is_one_of_windows", path="C:\\data\\part.parquet")
in_add("DL-ADD-03", "a_path_has_a_raw_blank", path="part 6.parquet")
in_add("DL-ADD-07", "a_partition_key_is_foreign", partitionValues={"other": "1"})
in_add("DL-ADD-10", "a_tag_is_a_number", tags={"a": 1})
in_add("DL-ADD-12", "a_clustering_provider_is_a_number", clusteringProvider=5)
in_add("DL-ADD-13", "a_time_is_in_seconds", modificationTime=NOW_MS // 1000)
in_add("DL-FILE-16", "a_data_file_is_in_a_hidden_directory", path="_hidden/part.parquet")
in_add("DL-STAT-01", "statistics_are_an_object", stats={"numRecords": 1})
in_add("DL-STAT-01", "statistics_are_not_json", stats="{numRecords")
in_add("DL-STAT-02", "the_number_of_records_is_negative", stats='{"numRecords":-1}')
in_add("DL-STAT-03", "tight_bounds_is_a_text", stats='{"numRecords":1,"tightBounds":"x"}')
in_add("DL-ADD-11", "a_row_id_is_a_text", baseRowId="x")


@damage("DL-STAT-04")
def a_null_count_is_a_text(log: MemoryLog) -> bool:
    return _stats(log, lambda stats: stats["nullCount"].update(dict.fromkeys(_column(stats), "x")))


@damage("DL-STAT-05")
def the_minimum_is_above_the_maximum(log: MemoryLog) -> bool:
    return _stats(log, lambda stats: stats["minValues"].update(dict.fromkeys(_column(stats), 999)))


@damage("DL-STAT-05")
def there_are_more_nulls_than_records(log: MemoryLog) -> bool:
    return _stats(log, lambda stats: stats["nullCount"].update(dict.fromkeys(_column(stats), 99)))


@damage("DL-ADD-08")
def a_partition_value_is_of_another_type(log: MemoryLog) -> bool:
    def change(add: Row) -> None:
        add["partitionValues"] = dict.fromkeys(add["partitionValues"], "not a number")

    return bool(log.lines(HEAD)[1]["add"]["partitionValues"]) and log.edit(HEAD, "add", change)


@damage("DL-ADD-07")
def a_partition_key_is_missing(log: MemoryLog) -> bool:
    values = log.lines(HEAD)[1]["add"]["partitionValues"]
    return bool(values) and log.edit(HEAD, "add", setting(partitionValues={}))


@damage("DL-STAT-01")
def a_minimum_is_not_a_number(log: MemoryLog) -> bool:
    def change(add: Row) -> None:
        add["stats"] = add["stats"].replace('"minValues":{', '"minValues":{"x":NaN,')

    return log.edit(HEAD, "add", change)


@damage("DL-REC-02")
def a_file_is_added_twice_in_one_commit(log: MemoryLog) -> bool:
    return twice(log, HEAD, "add")


@damage("DL-REC-02")
def a_file_is_removed_twice_in_one_commit(log: MemoryLog) -> bool:
    return twice(log, CHECKPOINT, "remove")


@damage("DL-REC-03")
def a_file_is_added_and_removed_in_one_commit(log: MemoryLog) -> bool:
    add = next(line["add"] for line in log.lines(HEAD) if "add" in line)
    remove = {"path": add["path"], "deletionTimestamp": NOW_MS, "dataChange": True}
    log.put(HEAD, [*log.lines(HEAD), {"remove": remove}])
    return True


@damage("DL-FILE-17")
def a_file_is_added_again_with_another_size(log: MemoryLog) -> bool:
    before = next(line for line in log.lines(HEAD - 1) if "add" in line)
    before["add"]["size"] += 1
    log.put(HEAD, [*log.lines(HEAD), before])
    return "baseRowId" not in before["add"]


@damage("DL-REM-01")
def a_remove_has_no_path(log: MemoryLog) -> bool:
    return log.edit(CHECKPOINT, "remove", setting(path=None))


@damage("DL-REM-02")
def a_remove_has_no_time(log: MemoryLog) -> bool:
    return log.edit(CHECKPOINT, "remove", setting(deletionTimestamp=None))


@damage("DL-REM-03")
def a_remove_promises_what_it_lacks(log: MemoryLog) -> bool:
    return log.edit(CHECKPOINT, "remove", setting(extendedFileMetadata=True))


@damage("DL-REM-06")
def a_file_is_removed_that_nobody_added(log: MemoryLog) -> None:
    remove = {"path": "never.parquet", "deletionTimestamp": NOW_MS, "dataChange": True}
    log.put(HEAD, [*log.lines(HEAD), {"remove": remove}])


@damage("DL-ADD-05")
def a_file_is_removed_under_another_spelling(log: MemoryLog) -> None:
    lines = log.lines(HEAD)
    add = next(line["add"] for line in lines if "add" in line)
    add["path"] = "/elsewhere/part.parquet"
    remove = {"path": "file:/elsewhere/part.parquet", "deletionTimestamp": NOW_MS}
    log.put(HEAD, lines)
    log.put(HEAD + 1, [lines[0], {"remove": remove | {"dataChange": True}}])


@damage("DL-ADD-09")
def rows_get_lost_in_a_rearrangement(log: MemoryLog) -> bool:
    old = next(line["add"] for line in log.lines(HEAD) if "add" in line)
    remove = {"path": old["path"], "deletionTimestamp": NOW_MS, "dataChange": False}
    new = {**old, "path": "compact.parquet", "dataChange": False}
    stats = json.loads(new["stats"]) | {"numRecords": 9}
    lines = [log.lines(HEAD)[0], {"remove": remove}, {"add": {**new, "stats": json.dumps(stats)}}]
    log.put(HEAD + 1, lines)
    return True


def _stats(log: MemoryLog, change: Callable[[Row], object]) -> bool:
    def edit(add: Row) -> None:
        stats = json.loads(add["stats"])
        change(stats)
        add["stats"] = json.dumps(stats)

    return log.edit(HEAD, "add", edit)


def _column(stats: Row) -> list[str]:
    return list(stats["minValues"])
