"""Rules of the adds of a checkpoint whose commits are cleaned up: it is all that tells of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mirror_assets.conformance.checks import CHECKPOINT, Found, found_in
from mirror_assets.conformance.views import CheckpointView
from mirror_assets.delta.actions import MetaData, TableProtocol
from mirror_assets.delta.file_rules import check_partition_values
from mirror_assets.delta.table_rules import rules_of
from mirror_assets.errors import RuleViolationError
from mirror_assets.findings import Severity


@CHECKPOINT.checks("DL-ADD-07", "DL-ADD-08")
def partition_values_are_those_of_the_table(view: CheckpointView) -> Iterator[Found]:
    protocol = next((a for a in view.scan.others if isinstance(a, TableProtocol)), None)
    metadata = next((a for a in view.scan.others if isinstance(a, MetaData)), None)
    if not _stands_alone(view) or protocol is None or metadata is None:
        return
    rules = rules_of(protocol, metadata)
    for values, path in view.scan.entries.partition_values.items():
        try:
            check_partition_values(path, dict(values), rules)
        except RuleViolationError as exc:
            found = found_in(exc)
            yield view.found(found.rule, found.message)


@CHECKPOINT.checks("DL-ADD-02", "DL-ADD-03", "DL-FILE-16")
def paths_are_references(view: CheckpointView) -> Iterator[Found]:
    for breach in view.scan.entries.paths if _stands_alone(view) else ():
        found = found_in(breach)
        yield view.found(found.rule, found.message)


@CHECKPOINT.checks("DL-ADD-01", "DL-ADD-13")
def sizes_and_times_are_possible(view: CheckpointView) -> Iterator[Found]:
    if not _stands_alone(view):
        return
    negative = np.count_nonzero(view.scan.files.size < 0)
    if negative:
        yield view.found("DL-ADD-01", f"{negative} files have a negative size")
    if view.scan.entries.odd_times:
        message = f"modificationTime of {view.scan.entries.odd_times} files is no time in ms"
        yield view.found("DL-ADD-13", message, at_most=Severity.WARNING)


def _stands_alone(view: CheckpointView) -> bool:
    return view.replayed is None and view.scan.is_readable
