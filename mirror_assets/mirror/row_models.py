"""What the metastore's own rows must look like, whoever wrote them, as pandera models.

The writer validates what it is given; these look at what is stored, before it is published and
whenever a log is checked. A row that fails is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import pandera.pyarrow as pap
import pyarrow as pa
import pyarrow.compute as pc
from pandera.errors import SchemaErrors

from mirror_assets.findings import Finding, Severity
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.log_reader import LogReader, TableRecord
from mirror_assets.metastore.metadata_rows import added_file_rows, live_file_rows, version_rows

#: failing rows that are shown; the rest is counted
_SHOWN: Final = 50
_TEXT: Final = 200
#: Arrow's expressions know no lookahead, hence two
_PATH: Final = r"^[^\x00-\x1f\x7f]+$"
_LEAVES_TABLE: Final = r"(^|/)\.\.(/|$)"
_REMEDY: Final = "restore the row from a backup, or remove the file with a commit"


class FileRows(pap.DataFrameModel):
    """Adds: what they name, how large it is, and what is known of it."""

    version: int = pap.Field(ge=0)
    path: str = pap.Field(str_matches=_PATH)
    stays_inside: bool = pap.Field(isin=[True])
    size: int = pap.Field(ge=0)
    modification_time: int = pap.Field(ge=0)
    #: whether the partition values have the table's partition columns as keys, and no others
    partition_keys_fit: bool = pap.Field(isin=[True])
    #: -1 without statistics, -2 where they are no JSON object with a number of records
    num_records: int = pap.Field(ge=-1)


class VersionRows(pap.DataFrameModel):
    """Versions: without a gap, and with a frozen digest."""

    version: int = pap.Field(ge=0)
    #: from the version before
    step: int = pap.Field(isin=[1])
    num_actions: int = pap.Field(ge=0)
    byte_length: int = pap.Field(ge=0)
    sha256: str = pap.Field(str_matches=r"^[0-9a-f]{64}$")
    committed_at_ms: int = pap.Field(ge=0)


_RULES: Final = {
    "path": ("DL-ADD-02", "the path is empty, or holds control characters"),
    "stays_inside": ("DL-ADD-02", "the path leads out of the table"),
    "size": ("DL-ADD-01", "the size is negative"),
    "modification_time": ("DL-ADD-01", "the modification time is before 1970"),
    "partition_keys_fit": ("DL-ADD-07", "the partition values do not fit the partition columns"),
    "num_records": ("DL-STAT-01", "the statistics are no JSON object, or count below zero"),
    "step": ("DL-FILE-03", "a version is missing before this one, or is there twice"),
    "sha256": ("MA-110", "the digest frozen at the commit is no SHA-256"),
    "byte_length": ("MA-110", "the length of the commit file is negative"),
}


def judge_pending(metastore: Metastore, name: str, to_version: int) -> list[Finding]:
    """The rows that are about to be published, up to a version."""
    table = LogReader(metastore).table(name)
    first, last = table.mirrored_version + 1, min(to_version, table.head_version)
    if first > last:
        return []
    files = added_file_rows(metastore, table, first, last)
    return [*_judge_versions(metastore, table, first, last), *_judge(metastore, table, files)]


def judge_state(metastore: Metastore, name: str, version: int) -> list[Finding]:
    """The live files at a version, and all versions up to it."""
    table = LogReader(metastore).table(name)
    files = live_file_rows(metastore, table, version)
    first = table.first_version
    return [*_judge_versions(metastore, table, first, version), *_judge(metastore, table, files)]


def judge_files(
    batches: Iterable[pa.RecordBatch], partition_columns: Sequence[str], table: str
) -> Iterator[Finding]:
    """Findings of rows of adds."""
    for batch in batches:
        if batch.num_rows:
            rows = _with_derived(pa.Table.from_batches([batch]), frozenset(partition_columns))
            yield from _failures(FileRows, rows, table)


def judge_versions(batches: Iterable[pa.RecordBatch], before: int, table: str) -> Iterator[Finding]:
    """Findings of rows of versions; `before` is the one that they follow."""
    for batch in batches:
        if batch.num_rows:
            versions = batch.column("version").to_pylist()
            steps = [b - a for a, b in zip([before, *versions], versions, strict=False)]
            rows = pa.Table.from_batches([batch]).append_column("step", pa.array(steps, pa.int64()))
            before = versions[-1]
            yield from _failures(VersionRows, rows, table)


def _judge(
    metastore: Metastore, table: TableRecord, batches: Iterable[pa.RecordBatch]
) -> list[Finding]:
    columns = LogReader(metastore).summary(table.name).metadata.partition_columns
    return _cut(list(judge_files(batches, columns, table.name)), table.name)


def _judge_versions(
    metastore: Metastore, table: TableRecord, first: int, last: int
) -> list[Finding]:
    batches = version_rows(metastore, table, first, last)
    return _cut(list(judge_versions(batches, first - 1, table.name)), table.name)


def _with_derived(rows: pa.Table, partition_columns: frozenset[str]) -> pa.Table:
    values = (_loaded(text) for text in rows["partition_values"].to_pylist())
    fits = [isinstance(v, Mapping) and v.keys() == partition_columns for v in values]
    counts = [_records(text) for text in rows["stats"].to_pylist()]
    derived = rows.drop_columns(["partition_values", "stats"])
    derived = derived.append_column("partition_keys_fit", pa.array(fits, pa.bool_()))
    derived = derived.append_column("num_records", pa.array(counts, pa.int64()))
    inside = pc.invert(pc.match_substring_regex(rows["path"], _LEAVES_TABLE))
    return derived.append_column("stays_inside", inside)


def _records(text: str | None) -> int:
    if text is None:
        return -1
    stats = _loaded(text)
    if not isinstance(stats, Mapping):
        return -2
    count = stats.get("numRecords", -1)
    return count if isinstance(count, int) and count >= 0 else (-1 if count == -1 else -2)


def _loaded(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _failures(model: type[pap.DataFrameModel], rows: pa.Table, table: str) -> Iterator[Finding]:
    try:
        model.validate(rows, lazy=True)
    except SchemaErrors as errors:
        seen = set()
        for case in errors.failure_cases.to_pylist():
            column, value = case["column"], str(case["failure_case"])
            if (column, value) not in seen:
                seen.add((column, value))
                yield from _shown(rows, column, value, str(case["check"]), table)


def _shown(rows: pa.Table, column: str, value: str, check: str, table: str) -> Iterator[Finding]:
    """The rows with the failing value; a column that is wrong as a whole stands for itself."""
    rule, what = _RULES.get(column, ("MA-110", f"{column} does not pass {check}"))
    found = rows.slice(0, 0)
    if column in rows.column_names:
        texts = pc.cast(rows[column], pa.string())
        found = rows.filter(pc.equal(texts, _arrow_text(rows[column].type, value)))
        found = found.slice(0, _SHOWN)
    for row in found.to_pylist() or [{}]:
        which = row.get("path") or f"version {row.get('version')}"
        yield Finding(
            rule=rule,
            severity=Severity.ERROR,
            message=f"row of {which}: {what} ({column} = {value[:_TEXT]!r})",
            remedy=_REMEDY,
            table=table,
            version=row.get("version"),
        )


def _arrow_text(kind: pa.DataType, value: str) -> str:
    """Say `false` as Arrow does; pandera says `False`."""
    return value.lower() if pa.types.is_boolean(kind) else value


def _cut(findings: list[Finding], table: str) -> list[Finding]:
    if len(findings) <= _SHOWN:
        return findings
    message = f"{len(findings) - _SHOWN} more rows fail"
    rest = Finding(rule="MA-110", severity=Severity.ERROR, message=message, table=table)
    return [*findings[:_SHOWN], rest]
