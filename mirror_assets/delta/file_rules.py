"""Rules of file actions: add, remove and cdc, each by itself and together in one commit.

The loop over adds is the hot path of every commit: it makes no object per file but the decoded
statistics, and takes the long way only where a file is unusual.
"""

from __future__ import annotations

import re
from collections import Counter
from operator import gt
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import astuple

from mirror_assets.delta.actions import (
    INT32_MAX,
    INT64_MAX,
    AddFile,
    CdcFile,
    DeletionVector,
    FileAction,
    RemoveFile,
    StringMap,
)
from mirror_assets.delta.path_rules import check_new_path, check_text, is_absolute, is_encodable
from mirror_assets.delta.schema import short
from mirror_assets.errors import RuleViolationError
from mirror_assets.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_assets.delta.partition_values import TextCheck
    from mirror_assets.delta.table_rules import FileStats, TableRules

#: what nearly all paths look like, each on a line: plain segments that readers do not skip
_PLAIN_PATHS: Final = re.compile(r"(?:[\n/][A-Za-z0-9=+@,~-][A-Za-z0-9._=+@,~-]*+)*+")
_Z85: Final = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]*")
_UUID_TEXT_LENGTH: Final = 20
#: partition values of one table; more are worked out anew
_REMEMBERED: Final = 10_000
_ADD_TYPES: Final = (str, dict, int, int, bool)
#: milliseconds from 2001 to 5138: seconds and microseconds of our time are outside
_MILLISECONDS: Final = range(10**12, 10**14)


def check_files(
    adds: Sequence[AddFile], removes: Sequence[RemoveFile], rules: TableRules
) -> list[Finding]:
    """Check the file actions of a commit, alone and against each other.

    Raises RuleViolationError for the first breach; returns what is merely odd.
    """
    for remove in removes:
        _check_remove(remove, rules)
    removed = {remove.path: remove for remove in removes}
    findings: list[Finding] = []
    if adds:
        if rules.no_data_because is not None:
            raise _breach("DL-SCH-06", f"no data file may be added: {rules.no_data_because}")
        _check_adds(adds, rules, removed)
        _check_add_paths(adds, removed)
        findings += _odd_adds(adds, rules)
    if len(adds) + len(removes) > 1:
        _check_distinct(adds, removes, removed)
    if removes and any(remove.deletion_timestamp is None for remove in removes):
        message = "a remove has no deletionTimestamp: its file counts as expired at once"
        findings.append(_warning("DL-REM-02", message))
    return findings


def check_cdc(files: Sequence[CdcFile], rules: TableRules) -> list[Finding]:
    """Check the change files of a commit. Raises RuleViolationError for the first breach."""
    if not files:
        return []
    if "changeDataFeed" not in rules.features:
        raise _breach("DL-CDC-04", "the protocol does not have the feature changeDataFeed")
    for cdc in files:
        if type(cdc.size) is not int or not 0 <= cdc.size <= INT64_MAX:
            raise _breach("DL-CDC-01", f"cdc {short(cdc.path)} has the size {short(cdc.size)}")
        if cdc.data_change is not False:
            raise _breach("DL-CDC-02", f"cdc {short(cdc.path)} has dataChange other than false")
        check_new_path(cdc.path, "cdc", is_cdc=True)
        check_partition_values(cdc.path, cdc.partition_values, rules)
        _check_tags(cdc.path, cdc.tags)
    if rules.change_data_feed_enabled:
        return []
    return [_warning("DL-CDF-01", "there are cdc actions, but delta.enableChangeDataFeed is off")]


def _check_distinct(
    adds: Sequence[AddFile], removes: Sequence[RemoveFile], removed: Mapping[str, RemoveFile]
) -> None:
    added = {add.path for add in adds}
    if len(added) != len(adds):
        raise _breach("DL-REC-02", f"{short(_first_twice(adds))} is added twice")
    if len(removed) != len(removes):
        raise _breach("DL-REC-02", f"{short(_first_twice(removes))} is removed twice")
    if not removed or added.isdisjoint(removed):
        return
    for add in adds:
        remove = removed.get(add.path)
        if remove is not None and remove.dv_id == add.dv_id:
            message = f"{short(add.path)} is both added and removed with one deletion vector"
            raise _breach("DL-REC-03", message)


def _check_adds(
    adds: Sequence[AddFile], rules: TableRules, removed: Mapping[str, RemoveFile]
) -> None:
    accepted = rules.accepted
    partitioned = bool(rules.partition_names)
    needs_stats = rules.stats_needed_by is not None
    for add in adds:
        path, values, size, time = add.path, add.partition_values, add.size, add.modification_time
        if (
            (type(path), type(values), type(size), type(time), type(add.data_change)) != _ADD_TYPES
            or not 0 <= size <= INT64_MAX
            or not -INT64_MAX <= time <= INT64_MAX
        ):
            raise _add_type_breach(add)
        if (values or partitioned) and not _is_known(values, accepted):
            check_partition_values(path, values, rules)
        stats = add.stats
        if stats is not None:
            _check_stats(path, stats, rules, add.deletion_vector)
        elif needs_stats or add.deletion_vector is not None:
            raise _missing_stats(path, rules)
        if (
            add.deletion_vector is not None
            or add.tags is not None
            or add.base_row_id is not None
            or add.default_row_commit_version is not None
            or add.clustering_provider is not None
        ):
            _check_unusual_add(add, rules, removed)


def _check_add_paths(adds: Sequence[AddFile], removed: Mapping[str, RemoveFile]) -> None:
    """Look at all paths as one text; only where something is unusual, at each."""
    text = "\n".join(["", *[add.path for add in adds]])
    if _PLAIN_PATHS.fullmatch(text) and text.count("\n") == len(adds):
        return
    for add in adds:
        # the name of a file that leaves in this commit is not ours to correct
        if add.path not in removed:
            check_new_path(add.path, "add")


def _is_known(values: StringMap, accepted: set[tuple[object, ...]]) -> bool:
    try:
        return tuple(values.items()) in accepted
    except TypeError:  # a value that is no text
        return False


def check_partition_values(path: str, values: StringMap, rules: TableRules) -> None:
    """Check the values of one file. Raises RuleViolationError (DL-ADD-07, DL-ADD-08)."""
    if type(values) is not dict or values.keys() != rules.partition_names:
        names = sorted(rules.partition_names)
        message = f"{short(path)} has the partition values {short(values)}, expected {names}"
        raise _breach("DL-ADD-07", message)
    for name, check in rules.partition_checks:
        value = values[name]
        if type(value) is str:
            _check_partition_text(path, name, value, check)
        elif value is not None:
            raise _breach("DL-ADD-08", f"{short(path)}: {name!r} is {short(value)}, not a text")
    if len(rules.accepted) >= _REMEMBERED:
        rules.accepted.clear()
    rules.accepted.add(tuple(values.items()))


def _check_partition_text(path: str, name: str, value: str, check: TextCheck) -> None:
    # the empty text is the other spelling of null
    if value and not (check(value) and (value.isascii() or is_encodable(value))):
        message = f"{short(path)}: {name!r} is {short(value)}, which its column's type cannot be"
        raise _breach("DL-ADD-08", message, "write the value as section 5.1 of the rules says")


def _check_stats(path: str, text: str, rules: TableRules, vector: DeletionVector | None) -> None:
    try:
        stats = rules.stats.decode(text)
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError) as exc:
        raise _broken_stats(path, text, exc) from exc
    records, counts = stats.num_records, stats.null_count
    lows, highs = stats.min_values, stats.max_values
    if records is None and (vector is not None or rules.stats_needed_by is not None):
        raise _missing_stats(path, rules)
    try:
        plausible = (records is None or counts is None or max(astuple(counts)) <= records) and (
            lows is None or highs is None or not any(map(gt, astuple(lows), astuple(highs)))
        )
    except (TypeError, ValueError):  # a column, or a table, without values
        plausible = False
    if not plausible:
        _check_numbers(path, stats)


def _check_numbers(path: str, stats: FileStats) -> None:
    """Look at each column by itself: some are left out, and bounds may be wide."""
    records = stats.num_records
    if records is not None and stats.null_count is not None and stats.tight_bounds is not False:
        for count in astuple(stats.null_count):
            if count is not None and count > records:
                message = f"{short(path)}: {count} nulls in a column of {records} records"
                raise _breach("DL-STAT-05", message)
    if stats.min_values is None or stats.max_values is None:
        return
    for low, high in zip(astuple(stats.min_values), astuple(stats.max_values), strict=True):
        if low is not None and high is not None and low > high:
            message = f"{short(path)}: the minimum {low} is above the maximum {high}"
            raise _breach("DL-STAT-05", message)


def _check_unusual_add(add: AddFile, rules: TableRules, removed: Mapping[str, RemoveFile]) -> None:
    _check_tags(add.path, add.tags)
    _check_row_ids(add, "DL-ADD-11")
    if add.clustering_provider is not None:
        check_text("DL-ADD-12", f"clusteringProvider of {short(add.path)}", add.clustering_provider)
    vector = add.deletion_vector
    if vector is None:
        return
    _check_vector(add.path, vector, rules)
    replaces_one = add.path in removed
    if replaces_one and not rules.deletion_vectors_enabled:
        message = f"{short(add.path)} gets a new deletion vector, which the table does not allow"
        raise _breach("DL-DV-02", message, "set delta.enableDeletionVectors to true")
    records = rules.stats.decode(add.stats or "{}").num_records
    if records is not None and vector.cardinality > records:
        message = f"{short(add.path)}: {vector.cardinality} of {records} records are deleted"
        raise _breach("DL-DV-06", message)


def _check_vector(path: str, vector: DeletionVector, rules: TableRules) -> None:
    if "deletionVectors" not in rules.features:
        message = f"{short(path)} has a deletion vector, but the protocol lacks deletionVectors"
        raise _breach("DL-DV-02", message)
    name = f"the deletion vector of {short(path)}"
    check_text("DL-DV-01", name, vector.path_or_inline_dv)
    offset = 0 if vector.offset is None else vector.offset
    for number, largest in (
        (offset, INT32_MAX),
        (vector.size_in_bytes, INT32_MAX),
        (vector.cardinality, INT64_MAX),
    ):
        if type(number) is not int or not 0 <= number <= largest:
            raise _breach("DL-DV-01", f"{name} has a number that is {short(number)}")
    match vector.storage_type:
        case "u":
            uuid = vector.path_or_inline_dv[-_UUID_TEXT_LENGTH:]
            sound = len(uuid) == _UUID_TEXT_LENGTH and _Z85.fullmatch(uuid) is not None
        case "i":
            sound = vector.offset is None and _is_inline_vector(vector)
        case "p":
            sound = is_absolute(vector.path_or_inline_dv)
        case _:
            message = f"{name} has the storage type {short(vector.storage_type)}, not u, i or p"
            raise _breach("DL-DV-01", message)
    if not sound:
        raise _breach("DL-DV-04", f"{name} is no descriptor: {short(vector.path_or_inline_dv)}")


def _is_inline_vector(vector: DeletionVector) -> bool:
    text = vector.path_or_inline_dv
    groups, rest = divmod(len(text), 5)
    fits = groups * 4 - 4 < vector.size_in_bytes <= groups * 4
    return rest == 0 and fits and _Z85.fullmatch(text) is not None


def _check_remove(remove: RemoveFile, rules: TableRules) -> None:
    check_text("DL-REM-01", "the path of a remove", remove.path)
    if not remove.path or type(remove.data_change) is not bool:
        message = f"remove {short(remove.path)} with dataChange {short(remove.data_change)}"
        raise _breach("DL-REM-01", message)
    for number in (remove.deletion_timestamp, remove.size):
        if number is not None and (type(number) is not int or not 0 <= number <= INT64_MAX):
            raise _breach("DL-REM-01", f"remove {short(remove.path)} has the number {number!r}")
    if remove.extended_file_metadata is True and (
        remove.partition_values is None or remove.size is None
    ):
        message = f"remove {short(remove.path)} promises partitionValues and size, but lacks them"
        raise _breach("DL-REM-03", message)
    if remove.data_change and rules.append_only:
        message = f"{short(remove.path)} may not be removed: delta.appendOnly is true"
        raise _breach("DL-AO-01", message, "the table only takes new data")
    if remove.deletion_vector is not None:
        _check_vector(remove.path, remove.deletion_vector, rules)
    _check_tags(remove.path, remove.tags)
    _check_row_ids(remove, "DL-REM-05")


def _check_tags(path: str, tags: StringMap | None) -> None:
    if tags is None:
        return
    if type(tags) is not dict:
        raise _breach("DL-ADD-10", f"the tags of {short(path)} are {short(tags)}")
    for key, value in tags.items():
        check_text("DL-ADD-10", f"a tag of {short(path)}", key)
        if value is not None:
            check_text("DL-ADD-10", f"the tag {short(key)} of {short(path)}", value)


def _check_row_ids(action: FileAction, rule: str) -> None:
    for number in (action.base_row_id, action.default_row_commit_version):
        if number is not None and (type(number) is not int or not 0 <= number <= INT64_MAX):
            raise _breach(rule, f"{short(action.path)} has the row id or version {short(number)}")


def _odd_adds(adds: Sequence[AddFile], rules: TableRules) -> list[Finding]:
    found: dict[str, str] = {}
    for add in adds:
        if add.modification_time not in _MILLISECONDS and "DL-ADD-13" not in found:
            time = f"modificationTime {add.modification_time} of {short(add.path)}"
            found["DL-ADD-13"] = f"{time} is no time in ms"
        if add.deletion_vector is not None and not rules.deletion_vectors_enabled:
            found["DL-DV-02"] = (
                "a file with a deletion vector is added, but delta.enableDeletionVectors is off"
            )
    return [_warning(rule, message) for rule, message in found.items()]


def _first_twice(actions: Iterable[FileAction]) -> str:
    return Counter(action.path for action in actions).most_common(1)[0][0]


def _add_type_breach(add: AddFile) -> RuleViolationError:
    shown = short((add.partition_values, add.size, add.modification_time, add.data_change))
    message = f"add {short(add.path)}: a required member is of another type or negative: {shown}"
    return _breach(
        "DL-ADD-01", message, "path, partitionValues, size, modificationTime, dataChange"
    )


def _missing_stats(path: str, rules: TableRules) -> RuleViolationError:
    why = rules.stats_needed_by or "its deletion vector"
    message = f"add {short(path)} has no statistics with numRecords, which {why} needs"
    return _breach("DL-DV-06" if rules.stats_needed_by is None else "DL-STAT-02", message)


def _broken_stats(path: str, text: object, exc: Exception) -> RuleViolationError:
    rule = "DL-STAT-01"
    if isinstance(exc, msgspec.ValidationError):
        member = str(exc).rpartition("`$.")[2]
        for prefix, found in _STATS_RULES.items():
            rule = found if member.startswith(prefix) else rule
    message = f"add {short(path)}: stats are not statistics in JSON ({exc}): {short(text)}"
    return _breach(rule, message, "leave stats out rather than write them wrong")


_STATS_RULES: Final = {
    "numRecords": "DL-STAT-02",
    "tightBounds": "DL-STAT-03",
    "nullCount": "DL-STAT-04",
    "minValues": "DL-STAT-05",
    "maxValues": "DL-STAT-05",
}


def _warning(rule: str, message: str) -> Finding:
    return Finding(rule=rule, severity=Severity.WARNING, message=message)


def _breach(rule: str, message: str, remedy: str | None = None) -> RuleViolationError:
    return RuleViolationError(message, rule=rule, remedy=remedy)
