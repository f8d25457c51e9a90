"""Rules that a listing of `_delta_log` can answer (DL-FILE, DL-CLN)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from mirror_assets.conformance.checks import LOG, Found
from mirror_assets.conformance.views import Log
from mirror_assets.delta.log_paths import (
    Checkpoint,
    Compaction,
    LogEntry,
    MultiPartCheckpoint,
)
from mirror_assets.findings import Severity

#: names that are nearly right, by the rule that says what is right
_NEARLY: Final = (
    ("DL-FILE-05", re.compile(r"\d+\.checkpoint\.parquet")),
    ("DL-FILE-06", re.compile(r"\d+\.checkpoint\.\d+\.\d+\.parquet")),
    ("DL-FILE-07", re.compile(r"\d+\.checkpoint\.[^.]+\.(?:json|parquet)")),
    ("DL-FILE-09", re.compile(r"\d+\.\d+\.compacted\.json")),
    ("DL-FILE-10", re.compile(r"\d+\.crc")),
    ("DL-FILE-08", re.compile(r"_sidecars/[^./][^/]*")),
    ("DL-FILE-11", re.compile(r"_staged_commits/\d[^/]*")),
)
_NEARLY_RULES: Final = tuple(rule for rule, _ in _NEARLY)


@LOG.checks("DL-FILE-01")
def commits_have_names_of_20_digits(log: Log) -> Iterator[Found]:
    for entry in log.listing.misnamed_commits:
        message = "some readers take it for a commit, others ignore it"
        yield Found(rule="DL-FILE-01", message=message, file=entry.name)


@LOG.checks("DL-FILE-03")
def versions_are_contiguous(log: Log) -> Iterator[Found]:
    for gap in log.listing.gaps():
        last = f" to {gap.stop - 1}" if len(gap) > 1 else ""
        message = f"the commit of version {gap.start}{last} is missing"
        covered = any(v >= gap.stop - 1 for v in log.listing.checkpoints)
        yield Found(
            rule="DL-FILE-03",
            message=message + (", though a checkpoint stands above" if covered else ""),
            version=gap.start,
        )


@LOG.checks("DL-FILE-04", "DL-CLN-08")
def the_newest_version_can_be_reconstructed(log: Log) -> Iterator[Found]:
    listing = log.listing
    newest = max([*listing.commits, *listing.checkpoints], default=None)
    ranges = listing.reconstructible()
    if newest is None:
        message = "the log has neither a commit nor a complete checkpoint"
        yield Found(rule="DL-FILE-04", message=message)
        return
    if not ranges or newest not in ranges[-1]:
        message = f"neither commit 0 nor a complete checkpoint leads to version {newest}"
        yield Found(rule="DL-FILE-04", message=message, version=newest)
    oldest = ranges[0].start if ranges else newest
    unreachable = [version for version in listing.commits if version < oldest]
    if unreachable and ranges:
        message = f"versions {unreachable[0]} to {unreachable[-1]} can no longer be read"
        mild = Severity.WARNING
        yield Found(rule="DL-CLN-08", message=message, version=unreachable[0], at_most=mild)


@LOG.checks(*_NEARLY_RULES)
def names_are_exactly_those_of_the_protocol(log: Log) -> Iterator[Found]:
    for entry in log.listing.unknown:
        rule = _nearly(entry)
        if rule is not None:
            message = "the name is nearly one of the protocol's; readers ignore the file or fail"
            yield Found(rule=rule, message=message, file=entry.name, at_most=Severity.WARNING)


@LOG.checks("DL-FILE-15")
def foreign_files_are_listed(log: Log) -> Iterator[Found]:
    for entry in log.listing.unknown:
        hidden = entry.name.startswith(".") or entry.name.endswith((".tmp", "/"))
        if not hidden and not entry.path.name[0:1].isdecimal() and _nearly(entry) is None:
            message = "not a file of the protocol; readers ignore it"
            yield Found(rule="DL-FILE-15", message=message, file=entry.name)


@LOG.checks("DL-FILE-06", "DL-FILE-13")
def checkpoints_are_complete(log: Log) -> Iterator[Found]:
    for checkpoint in log.listing.incomplete_checkpoints:
        yield from _incomplete(checkpoint)


@LOG.checks("DL-FILE-06")
def a_checkpoint_of_one_part_has_the_classic_name(log: Log) -> Iterator[Found]:
    for found in log.listing.checkpoints.values():
        for checkpoint in found:
            path = checkpoint.files[0].path
            if isinstance(path, MultiPartCheckpoint) and path.parts == 1:
                message = "a multi-part checkpoint has more than one part"
                yield Found(
                    rule="DL-FILE-06",
                    message=message,
                    version=path.version,
                    file=path.name,
                    at_most=Severity.WARNING,
                )


@LOG.checks("DL-FILE-14")
def checkpoints_and_compactions_are_of_published_versions(log: Log) -> Iterator[Found]:
    newest = log.listing.last_commit
    if newest is None:
        return
    for version, found in log.listing.checkpoints.items():
        if version > newest:
            message = f"a checkpoint of version {version}, but the newest commit is {newest}"
            name = found[0].names[0]
            yield Found(rule="DL-FILE-14", message=message, version=version, file=name)
    for entry in log.listing.compactions:
        if isinstance(entry.path, Compaction) and entry.path.last > newest:
            message = f"a compaction up to {entry.path.last}, but the newest commit is {newest}"
            yield Found(
                rule="DL-FILE-14", message=message, version=entry.path.last, file=entry.name
            )


@LOG.checks("DL-CLN-03")
def a_cleanup_keeps_the_commit_of_its_checkpoint(log: Log) -> Iterator[Found]:
    listing = log.listing
    first = listing.first_commit
    if not first or not listing.checkpoints:
        return
    base = max((version for version in listing.checkpoints if version < first), default=None)
    if base == first - 1 and first not in listing.checkpoints:
        message = f"the commit of version {base} is gone, though the log begins with its checkpoint"
        mild = Severity.WARNING
        yield Found(rule="DL-CLN-03", message=message, version=base, at_most=mild)


def _incomplete(checkpoint: Checkpoint) -> Iterator[Found]:
    first = checkpoint.files[0].path
    empty = [entry.name for entry in checkpoint.files if entry.size == 0]
    for name in empty:
        message = "the checkpoint is empty: many readers fail on it"
        yield Found(rule="DL-FILE-13", message=message, version=checkpoint.version, file=name)
    if isinstance(first, MultiPartCheckpoint) and len(checkpoint.files) != first.parts:
        message = f"{len(checkpoint.files)} of {first.parts} parts are there"
        yield Found(rule="DL-FILE-06", message=message, version=checkpoint.version, file=first.name)


def _nearly(entry: LogEntry) -> str | None:
    return next((rule for rule, form in _NEARLY if form.fullmatch(entry.name)), None)
