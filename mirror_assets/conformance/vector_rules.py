"""Rules of the deletion vectors of live files: their bytes, and how many rows they take away."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from mirror_assets.conformance.checks import END, Found, found_in
from mirror_assets.conformance.views import Log
from mirror_assets.delta.actions import DeletionVector
from mirror_assets.delta.deletion_vector import RowSet, inline_rows, relative_path, stored_rows
from mirror_assets.delta.schema import short
from mirror_assets.errors import RuleViolationError, StorageError


@END.checks("DL-DV-03", "DL-DV-04", "DL-DV-05", "DL-DV-06")
def vectors_take_away_what_they_say(log: Log) -> Iterator[Found]:
    live = log.history.live
    if live is None:
        return
    for path, (version, vector) in log.history.vectors.items():
        file = live.get(path)
        if file is None or file.vector != hash(vector.unique_id):
            continue
        try:
            rows = _rows(log, vector)
        except (RuleViolationError, StorageError) as exc:
            found = found_in(exc, version=version)
            yield Found(
                rule=found.rule,
                message=f"the deletion vector of {short(path)}: {exc.message}",
                version=version,
            )
            continue
        if rows is not None:
            yield from _compare(path, version, vector, rows, file.records)


def _rows(log: Log, vector: DeletionVector) -> RowSet | None:
    if vector.storage_type == "i":
        return inline_rows(vector)
    if vector.storage_type != "u" or log.read_data is None:
        return None
    name = relative_path(vector)
    data = log.read_data(unquote(name))
    if data is None:
        raise RuleViolationError(f"its file {name} is missing", rule="DL-DV-05")
    return stored_rows(vector, data)


def _compare(
    path: str, version: int, vector: DeletionVector, rows: RowSet, records: int
) -> Iterator[Found]:
    if rows.cardinality != vector.cardinality:
        message = f"{short(path)}: {rows.cardinality} rows are deleted, not {vector.cardinality}"
        yield Found(rule="DL-DV-05", message=message, version=version)
    if 0 <= records <= rows.largest:
        message = f"{short(path)}: row {rows.largest} is deleted, of {records} records"
        yield Found(rule="DL-DV-05", message=message, version=version)
