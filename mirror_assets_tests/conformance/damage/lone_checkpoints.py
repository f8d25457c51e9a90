"""Damage to checkpoints whose commits are cleaned up: nothing else tells of their files."""

from __future__ import annotations

from typing import Any

from mirror_assets.delta.log_paths import CommitName
from mirror_assets_tests.conformance.damage.kinds import DAMAGES, damage, setting
from mirror_assets_tests.conformance.logs import CHECKPOINT, MemoryLog, Row


def in_lone_checkpoint(rule: str, name: str, /, **members: Any) -> None:
    """Damage to an add that only the checkpoint tells of."""
    DAMAGES[name] = (rule, lambda log: _alone(log) and log.edit_row("add", setting(**members)))


in_lone_checkpoint("DL-ADD-01", "a_size_in_a_lone_checkpoint_is_negative", size=-1)
in_lone_checkpoint("DL-ADD-02", "a_path_in_a_lone_checkpoint_has_a_bad_escape", path="a%zz.parquet")
in_lone_checkpoint("DL-ADD-02", "a_path_in_a_lone_checkpoint_leads_out", path="../a.parquet")
in_lone_checkpoint("DL-ADD-03", "a_path_in_a_lone_checkpoint_has_a_blank", path="a b.parquet")
in_lone_checkpoint("DL-FILE-16", "a_path_in_a_lone_checkpoint_is_hidden", path="_x/a.parquet")
in_lone_checkpoint(
    "DL-FILE-16", "a_directory_in_a_lone_checkpoint_is_hidden", path="a/_b/c.parquet"
)
in_lone_checkpoint(
    "DL-ADD-13", "a_time_in_a_lone_checkpoint_is_in_s", modificationTime=1_700_000_000
)
in_lone_checkpoint(
    "DL-ADD-07", "a_lone_checkpoint_has_values_of_no_column", partitionValues={"nowhere": "1"}
)


@damage("DL-ADD-08")
def a_lone_checkpoint_has_a_value_of_another_type(log: MemoryLog) -> bool:
    def change(add: Row) -> None:
        add["partitionValues"] = dict.fromkeys(add["partitionValues"], "x")

    name = log.file_with("add")
    return (
        name is not None
        and b"day" in log.files[name]
        and _alone(log)
        and log.edit_row("add", change)
    )


def _alone(log: MemoryLog) -> bool:
    """Take away the commits that tell the same."""
    if log.file_with("add") is None:
        return False
    for version in range(CHECKPOINT):
        log.files.pop(CommitName(version).name, None)
    return True
