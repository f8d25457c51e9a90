"""Rules of a commit in the light of those before it: which files live, times, row ids, columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

import numpy as np

from mirror_assets.conformance.checks import COMMIT, END, Found
from mirror_assets.conformance.file_columns import key_hash
from mirror_assets.conformance.history import high_water_mark, physical_columns
from mirror_assets.conformance.live_files import LiveFiles
from mirror_assets.conformance.row_counts import num_records
from mirror_assets.conformance.views import Commit, Log
from mirror_assets.delta.actions import AddFile, CommitInfo, DomainMetadata, MetaData, RemoveFile
from mirror_assets.delta.conflicts import ROW_TRACKING_DOMAIN
from mirror_assets.delta.schema import (
    short,
)
from mirror_assets.delta.table_rules import is_on
from mirror_assets.delta.validation import CLUSTERING_DOMAIN
from mirror_assets.findings import Severity

_ICT: Final = "inCommitTimestamp"
_ICT_ON: Final = "delta.enableInCommitTimestamps"
_BEGIN_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
_BEGIN_TIME: Final = "delta.inCommitTimestampEnablementTimestamp"
_ICT_BEGIN: Final = frozenset({_BEGIN_VERSION, _BEGIN_TIME})
_ROW_TRACKING: Final = "rowTracking"


@COMMIT.checks("DL-ADD-06", "DL-FILE-17", "DL-REC-05", when=(AddFile,))
def an_added_file_does_not_contradict_a_live_one(commit: Commit) -> Iterator[Found]:
    live = commit.before.live
    if live is None:
        return
    for line, add in commit.each(AddFile):
        file = live.get(add.path)
        if file is None or add.path in commit.removed:
            continue
        if hash(add.dv_id) != file.vector:
            message = f"{short(add.path)} is live with another deletion vector, not removed here"
            yield commit.found("DL-ADD-06", message, line)
        elif add.size != file.size:
            message = f"{short(add.path)} had {file.size} bytes and now has {add.size}"
            yield commit.found("DL-FILE-17", message, line)


@COMMIT.checks("DL-REM-04", "DL-REM-06", "DL-ADD-05", when=(RemoveFile,))
def a_removed_file_was_live(commit: Commit) -> Iterator[Found]:
    live = commit.before.live
    if live is None:
        return
    for line, remove in commit.each(RemoveFile):
        file = live.get(remove.path)
        if file is None:
            yield _unknown_remove(commit, line, remove, live)
        elif file.vector != hash(remove.dv_id):
            message = f"{short(remove.path)} is live with another deletion vector"
            yield commit.found("DL-REM-04", message, line)


@COMMIT.checks("DL-ADD-09", when=(RemoveFile,))
def rearranging_keeps_the_number_of_rows(commit: Commit) -> Iterator[Found]:
    live = commit.before.live
    adds = [add for add in commit.adds if not add.data_change]
    removes = [remove for remove in commit.removes if not remove.data_change]
    if live is None or not adds or not removes or len(adds) < len(commit.adds):
        return
    came, went = 0, 0
    for add in adds:
        records = num_records(add.stats)
        if records is None:
            return
        came += records - (add.deletion_vector.cardinality if add.deletion_vector else 0)
    for remove in removes:
        file = live.get(remove.path)
        if file is None or file.records < 0:
            return
        went += file.records - file.deleted
    if came != went:
        message = f"dataChange is false, but {went} rows go and {came} come"
        yield commit.found("DL-ADD-09", message, at_most=Severity.WARNING)


@COMMIT.checks("DL-ICT-01", when=(MetaData,))
def in_commit_times_have_their_feature(commit: Commit) -> Iterator[Found]:
    if is_on(commit.during.configuration, _ICT_ON) and _ICT not in commit.features:
        message = f"{_ICT_ON} is true, but the protocol lacks the feature {_ICT}"
        yield commit.found("DL-ICT-01", message, at_most=Severity.WARNING)


@COMMIT.checks("DL-ICT-02", "DL-ICT-03", "DL-ICT-04", feature=_ICT)
def commits_carry_their_time(commit: Commit) -> Iterator[Found]:
    if not commit.during.is_active(_ICT, _ICT_ON):
        return
    infos, lines = commit.each(CommitInfo), commit.content.lines
    if not infos or not lines or infos[0][0] != lines[0][0]:
        message = "in-commit timestamps are on, but commitInfo is not the first action"
        yield commit.found("DL-ICT-02", message)
    time = infos[0][1].get(_ICT) if infos else None
    if infos and type(time) is not int:
        message = f"in-commit timestamps are on, but commitInfo has {short(time)}"
        yield commit.found("DL-ICT-03", message, infos[0][0])
    before = commit.before.in_commit_ms if commit.before.is_active(_ICT, _ICT_ON) else None
    if type(time) is int and before is not None and time <= before:
        message = f"the in-commit timestamp {time} is not after {before} of the version before"
        yield commit.found("DL-ICT-04", message, infos[0][0])


@COMMIT.checks("DL-ICT-05", when=(MetaData,))
def the_begin_of_in_commit_times_is_recorded(commit: Commit) -> Iterator[Found]:
    before, metadata = commit.before, commit.only(MetaData)
    if metadata is None or not commit.during.is_active(_ICT, _ICT_ON):
        return
    if commit.version == 0 and not _ICT_BEGIN.isdisjoint(metadata.configuration):
        message = "in-commit timestamps are on from the start: their begin is not recorded"
        yield commit.found("DL-ICT-05", message, at_most=Severity.WARNING)
    if before.metadata is None or before.is_active(_ICT, _ICT_ON):
        return
    info = commit.only(CommitInfo)
    expected = {
        _BEGIN_VERSION: commit.version,
        _BEGIN_TIME: info.get(_ICT) if info else None,
    }
    for key, value in expected.items():
        told = metadata.configuration.get(key)
        if told != str(value):
            message = f"{key} is {short(told)}, not {value}"
            yield commit.found("DL-ICT-05", message)


@COMMIT.checks("DL-RT-01", "DL-RT-03", "DL-RT-04", when=(AddFile,), feature=_ROW_TRACKING)
def new_files_get_fresh_row_ids(commit: Commit) -> Iterator[Found]:
    live = commit.before.live
    if is_on(commit.during.configuration, "delta.rowTrackingSuspended"):
        return
    mark = commit.before.high_water_mark()
    for line, add in commit.each(AddFile):
        if add.base_row_id is None or add.default_row_commit_version is None:
            message = f"{short(add.path)} lacks baseRowId or defaultRowCommitVersion"
            yield commit.found("DL-RT-01", message, line)
            continue
        old = live.get(add.path) if live is not None else None
        is_back = key_hash(add.path, add.dv_id) in commit.before.tombstones
        if old is None and add.path not in commit.removed and live is not None and not is_back:
            yield from _fresh_ids(commit, line, add, mark)
        elif old is not None and old.row_commit_version >= 0:
            told = (add.base_row_id, add.default_row_commit_version)
            if told != (old.base_row_id, old.row_commit_version):
                message = f"{short(add.path)} is added again with other row ids than it had"
                yield commit.found("DL-RT-04", message, line)


@COMMIT.checks("DL-RT-03", when=(AddFile, DomainMetadata), feature=_ROW_TRACKING)
def the_mark_of_row_ids_rises(commit: Commit) -> Iterator[Found]:
    before = commit.before.high_water_mark()
    domains = [a for _, a in commit.each(DomainMetadata) if a.domain == ROW_TRACKING_DOMAIN]
    after = high_water_mark(domains[0]) if domains else before
    if before is not None and after is not None and after < before:
        yield commit.found("DL-RT-03", f"the mark of row ids falls from {before} to {after}")
    for line, add in commit.each(AddFile):
        records = num_records(add.stats)
        if add.base_row_id is None or records is None or after is None:
            continue
        last = add.base_row_id + records - 1
        if last > after:
            message = f"{short(add.path)} has row ids up to {last}, above the mark {after}"
            yield commit.found("DL-RT-03", message, line)


@COMMIT.checks("DL-REM-05", when=(RemoveFile,), feature=_ROW_TRACKING)
def removed_files_keep_their_row_ids(commit: Commit) -> Iterator[Found]:
    live = commit.before.live
    if live is None:
        return
    for line, remove in commit.each(RemoveFile):
        file = live.get(remove.path)
        if file is None or file.base_row_id < 0 or remove.base_row_id is None:
            continue
        if (remove.base_row_id, remove.default_row_commit_version) != (
            file.base_row_id,
            file.row_commit_version,
        ):
            message = f"{short(remove.path)} is removed with other row ids than it has"
            yield commit.found("DL-REM-05", message, line)


@COMMIT.checks("DL-RT-05", when=(MetaData,))
def row_tracking_names_its_columns(commit: Commit) -> Iterator[Found]:
    for line, new in commit.each(MetaData):
        if not is_on(new.configuration, "delta.enableRowTracking"):
            continue
        for word in ("RowId", "RowCommitVersion"):
            key = f"delta.rowTracking.materialized{word}ColumnName"
            if not new.configuration.get(key):
                yield commit.found("DL-RT-05", f"row tracking is on, but {key} is not set", line)
        if is_on(new.configuration, "delta.rowTrackingSuspended"):
            yield commit.found("DL-RT-05", "row tracking is both on and suspended", line)


@COMMIT.checks("DL-CM-02", when=(MetaData,))
def physical_columns_are_not_used_again(commit: Commit) -> Iterator[Found]:
    for line, new in commit.each(MetaData):
        for name, number in physical_columns(new):
            known = commit.before.physical.setdefault(name, number)
            if number != known:
                message = f"the physical column {short(name)} had the id {known}, now {number}"
                yield commit.found("DL-CM-02", message, line)


@COMMIT.checks("DL-CAT-01", "DL-CAT-02", feature="catalogManaged")
def catalog_managed_commits_are_marked(commit: Commit) -> Iterator[Found]:
    if not commit.during.is_active(_ICT, _ICT_ON):
        message = "the table is catalog-managed, but in-commit timestamps are not on"
        yield commit.found("DL-CAT-01", message)
    info = commit.only(CommitInfo)
    if info is None or type(info.get("txnId")) is not str:
        yield commit.found("DL-CAT-02", "commitInfo has no txnId, which a catalog needs")


@END.checks("DL-RT-02")
def row_ids_do_not_overlap(log: Log) -> Iterator[Found]:
    history = log.history
    if history.live is None or _ROW_TRACKING not in history.features:
        return
    files = history.live.files()
    files = files.where((files.base_row_id >= 0) & (files.records > 0))
    files = files.take(np.argsort(files.base_row_id))
    ends = files.base_row_id[:-1] + files.records[:-1]
    for place in np.flatnonzero(ends > files.base_row_id[1:])[:10]:
        one, other = (history.live.path_of(int(files.key[place + n])) for n in (0, 1))
        message = f"the row ids of {short(one)} and {short(other)} overlap"
        yield Found(rule="DL-RT-02", message=message, version=history.version)


@END.checks("DL-CLU-01")
def clustered_tables_name_their_columns(log: Log) -> Iterator[Found]:
    history = log.history
    if "clustering" not in history.features or not history.is_known:
        return
    if CLUSTERING_DOMAIN not in history.domains:
        message = f"the feature clustering is listed, but there is no domain {CLUSTERING_DOMAIN}"
        mild = Severity.WARNING
        yield Found(rule="DL-CLU-01", message=message, version=history.version, at_most=mild)


@END.checks("DL-REC-05", "DL-CMT-06")
def the_table_has_protocol_and_metadata(log: Log) -> Iterator[Found]:
    history = log.history
    if history.version < 0 or not history.is_known:
        return
    for name, found in (("protocol", history.protocol), ("metaData", history.metadata)):
        if found is None:
            message = f"the state at version {history.version} has no {name}"
            yield Found(rule="DL-REC-05", message=message, version=history.version)


def _unknown_remove(commit: Commit, line: int, remove: RemoveFile, live: LiveFiles) -> Found:
    for other in spellings(remove.path):
        if live.get(other) is not None:
            message = f"{short(remove.path)} is removed, but was added as {short(other)}"
            return commit.found("DL-ADD-05", message, line)
    message = f"{short(remove.path)} is removed, but is not in the table"
    return commit.found("DL-REM-06", message, line, at_most=Severity.WARNING)


def spellings(path: str) -> Iterator[str]:
    """Other texts for the same place, as Spark sees it."""
    plain = urlsplit(path).path if "://" in path or path.startswith("file:") else path
    for text in (plain, unquote(path), f"file:{plain}", f"file://{plain}"):
        if text != path:
            yield text


def _fresh_ids(commit: Commit, line: int, add: AddFile, mark: int | None) -> Iterator[Found]:
    if add.default_row_commit_version != commit.version:
        message = (
            f"{short(add.path)} is new, but defaultRowCommitVersion is "
            f"{add.default_row_commit_version}"
        )
        yield commit.found("DL-RT-04", message, line)
    if mark is not None and add.base_row_id is not None and add.base_row_id <= mark:
        message = f"{short(add.path)} is new, but its baseRowId {add.base_row_id} is taken"
        yield commit.found("DL-RT-03", message, line)
