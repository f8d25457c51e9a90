"""Parity: what SQL says of a table equals what its log says, by two ways that share no step.

The references tell which version ends each file of the log, and so which files are live at every
version. SQL must say the same of every row, and of the totals of every version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sqlalchemy import ColumnElement, Table, and_, func, not_, or_, select

from mirror_assets.findings import Severity
from mirror_assets.metastore import tables
from mirror_assets.metastore.arrow_reader import stream
from mirror_assets.metastore.import_references import NEVER, places_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from sqlalchemy import Select

    from mirror_assets.metastore.database import Metastore
    from mirror_assets.metastore.import_findings import FindingLog
    from mirror_assets.metastore.import_references import Resolved
    from mirror_assets.metastore.log_reader import TableRecord

    Integers = NDArray[np.int64]

_BATCH_ROWS: Final = 16_384
_END_NAMES: Final = {
    tables.dl_add_files.name: "removed_version",
    tables.dl_remove_files.name: "superseded_version",
}
_OTHER: Final = "the log and SQL tell different states; nothing was taken over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """What was compared, and found equal unless a finding says otherwise."""

    #: file rows whose end SQL and the log agree on
    file_rows: int = 0
    #: versions whose totals they agree on
    versions: int = 0
    checkpoint_version: int | None = None
    checksums: int = 0


def compare_rows(
    metastore: Metastore,
    record: TableRecord,
    resolved: Resolved,
    findings: FindingLog,
    *,
    has_base: bool,
) -> int:
    """Compare the end of every file row of the state with the references; return how many."""
    compared = 0
    for is_add, end in (
        (True, tables.dl_add_files.c.removed_version),
        (False, tables.dl_remove_files.c.superseded_version),
    ):
        expected = int((resolved.is_add == is_add).sum())
        of_state = _of_state(record, end.table, has_base=has_base)
        query = select(end.table.c.version, end.table.c.ordinal, func.coalesce(end, NEVER))
        rows = _integers(metastore, query.where(of_state), expected)
        seen, wrong = _compare_ends(rows, resolved, is_add=is_add)
        compared += seen
        if wrong or seen != expected:
            message = (
                f"{end.table.name}: {expected} files in the log, {seen} in SQL, "
                f"{wrong} of them with another end"
            )
            findings.note("DL-REC-01", Severity.ERROR, message, remedy=_OTHER)
    return compared


def compare_totals(
    metastore: Metastore, record: TableRecord, resolved: Resolved, findings: FindingLog
) -> int:
    """Compare number and size of the live files at every version; return how many versions."""
    versions = tables.dl_table_versions
    query = (
        select(versions.c.version, versions.c.num_files, versions.c.size_bytes)
        .where(versions.c.table_id == record.table_id)
        .where(versions.c.version >= record.floor_version)
    )
    numbers, sizes = resolved.totals(record.floor_version, record.head_version)
    compared = 0
    for at, files, size in _integers(metastore, query, len(numbers)):
        index = at - record.floor_version
        wrong = (numbers[index] != files) | (sizes[index] != size)
        compared += len(at)
        for version in at[wrong].tolist():
            message = "number or size of the live files is not that of the log"
            findings.note("DL-REC-01", Severity.ERROR, message, version=version, remedy=_OTHER)
    return compared


def _of_state(record: TableRecord, table: Table, *, has_base: bool) -> ColumnElement[bool]:
    """The rows that tell of the state; and any of the history that would, too."""
    own = table.c.table_id == record.table_id
    if not has_base:
        return own
    end = table.c[_END_NAMES[table.name]]
    never_live = func.coalesce(end, NEVER) == table.c.version
    above = or_(table.c.version > record.floor_version, table.c.ordinal < 0)
    return and_(own, or_(above, not_(never_live)))


def _integers(
    metastore: Metastore, query: Select[Any], expected: int
) -> Iterator[Sequence[Integers]]:
    """The columns of a query of numbers, a batch at a time; as Arrow if many rows are expected."""
    if expected > _BATCH_ROWS:
        for batch in stream(metastore, query):
            # to_numpy() would load pandas
            for start in range(0, len(batch), _BATCH_ROWS):
                part = batch.slice(start, _BATCH_ROWS)
                yield [np.from_dlpack(column).astype(np.int64) for column in part.columns]
        return
    with metastore.read() as connection:
        rows = connection.execution_options(yield_per=_BATCH_ROWS).execute(query)
        for part in rows.partitions():
            yield list(np.array([tuple(row) for row in part], np.int64).T)


def _compare_ends(
    batches: Iterator[Sequence[Integers]], resolved: Resolved, *, is_add: bool
) -> tuple[int, int]:
    """How many rows SQL has, and how many of them end otherwise."""
    seen = wrong = 0
    for versions, ordinals, ends in batches:
        at = places_of(versions, ordinals)
        index = np.searchsorted(resolved.places, at)
        known = index < len(resolved.places)
        index = index[known]
        same = (resolved.places[index] == at[known]) & (resolved.ends[index] == ends[known])
        same &= resolved.is_add[index] == is_add
        seen += len(at)
        wrong += len(at) - int(same.sum())
    return seen, wrong
