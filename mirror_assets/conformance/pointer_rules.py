"""Rules of the pointer `_last_checkpoint` (DL-LCP)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from mirror_assets.conformance.checkpoint_scan import CheckpointScan
from mirror_assets.conformance.checks import POINTER, Found
from mirror_assets.conformance.views import Document
from mirror_assets.delta.last_checkpoint import (
    CheckpointHint,
    ChecksumVerdict,
    UnusableHint,
    checksums,
    parse_last_checkpoint,
    verify_checksum,
)
from mirror_assets.delta.log_paths import Checkpoint, MultiPartCheckpoint, V2Checkpoint
from mirror_assets.findings import Severity

_LONGEST_SCHEMA: Final = 20_000
_LONGEST_LIST: Final = 30


@POINTER.checks("DL-LCP-01", "DL-LCP-02")
def the_pointer_can_be_read(pointer: Document) -> Iterator[Found]:
    hint = parse_last_checkpoint(pointer.data)
    if isinstance(hint, UnusableHint):
        message = f"the pointer cannot be used: {hint.reason}"
        yield pointer.found("DL-LCP-01", message)
        if 0 not in pointer.log.listing.commits or not pointer.data.strip():
            yield pointer.found("DL-LCP-02", message)


@POINTER.checks("DL-LCP-02", "DL-LCP-06")
def the_pointer_names_a_complete_checkpoint(pointer: Document) -> Iterator[Found]:
    hint = _hint(pointer)
    if hint is None:
        return
    listing = pointer.log.listing
    if hint.version not in listing.checkpoints:
        message = f"there is no complete checkpoint of version {hint.version}, which it names"
        yield pointer.found("DL-LCP-02", message)
        return
    newest = listing.newest_checkpoint()
    if newest is not None and newest.version > hint.version:
        message = f"it names version {hint.version}, the newest checkpoint is {newest.version}"
        yield pointer.found("DL-LCP-06", message, at_most=Severity.INFO)


@POINTER.checks("DL-LCP-03", "DL-LCP-05")
def the_counts_are_right(pointer: Document) -> Iterator[Found]:
    hint, scans = _hint(pointer), _scans(pointer)
    if hint is None or not scans:
        return
    for rule, name, told, counted in (
        ("DL-LCP-03", "size", hint.size, {scan.actions for scan in scans}),
        ("DL-LCP-05", "sizeInBytes", hint.size_in_bytes, {scan.size_bytes for scan in scans}),
        ("DL-LCP-05", "numOfAddFiles", hint.num_of_add_files, {s.counts["add"] for s in scans}),
    ):
        if told is not None and told not in counted:
            message = f"{name} is {told}, but the checkpoint has {min(counted)}"
            yield pointer.found(rule, message, at_most=_inline_counts(scans, told))


@POINTER.checks("DL-LCP-04")
def parts_are_told_of_multi_part_checkpoints_only(pointer: Document) -> Iterator[Found]:
    hint, checkpoints = _hint(pointer), _checkpoints(pointer)
    if hint is None:
        return
    told = {c.files[0].path.parts for c in checkpoints if _is_multi_part(c)}  # type: ignore[union-attr] # they are
    if hint.parts is not None and checkpoints and hint.parts not in told:
        yield pointer.found("DL-LCP-04", f"it tells of {hint.parts} parts, which there are not")


@POINTER.checks("DL-LCP-07")
def no_member_is_named_twice(pointer: Document) -> Iterator[Found]:
    try:
        json.loads(pointer.data)
        verify_checksum(pointer.data)
    except json.JSONDecodeError:
        return
    except ValueError as exc:
        yield pointer.found("DL-LCP-07", str(exc))


@POINTER.checks("DL-LCP-09", "DL-LCP-10")
def the_checksum_is_right(pointer: Document) -> Iterator[Found]:
    try:
        verdict, sums = verify_checksum(pointer.data), checksums(pointer.data)
    except ValueError:
        return
    if verdict is ChecksumVerdict.INVALID:
        message = f"the checksum is not that of the content, {sums.protocol}"
        yield pointer.found("DL-LCP-09", message)
    elif verdict is ChecksumVerdict.VALID and sums.protocol != sums.spark:
        message = "the orders of the protocol and of Delta Spark give two checksums"
        yield pointer.found("DL-LCP-10", message, at_most=Severity.INFO)


@POINTER.checks("DL-LCP-11")
def large_members_are_left_out(pointer: Document) -> Iterator[Found]:
    try:
        document: Any = json.loads(pointer.data)
    except ValueError:
        return
    if not isinstance(document, dict):
        return
    schema, v2 = document.get("checkpointSchema"), document.get("v2Checkpoint")
    if schema is not None and not isinstance(schema, dict):
        yield pointer.found("DL-LCP-11", "checkpointSchema is not an object")
    elif len(json.dumps(schema, separators=(",", ":"))) > _LONGEST_SCHEMA:
        yield pointer.found("DL-LCP-11", f"checkpointSchema is longer than {_LONGEST_SCHEMA}")
    for name in ("nonFileActions", "sidecarFiles"):
        listed = v2.get(name) if isinstance(v2, dict) else None
        if isinstance(listed, list) and len(listed) > _LONGEST_LIST:
            yield pointer.found("DL-LCP-11", f"{name} has more than {_LONGEST_LIST} entries")


@POINTER.checks("DL-LCP-12")
def a_v2_checkpoint_is_named(pointer: Document) -> Iterator[Found]:
    hint, checkpoints = _hint(pointer), _checkpoints(pointer)
    if hint is None or not checkpoints:
        return
    if all(isinstance(c.files[0].path, V2Checkpoint) for c in checkpoints):
        told = (hint.v2_checkpoint or {}).get("path")
        names = {name for c in checkpoints for name in c.names}
        if told is None:
            message = "the checkpoint has a UUID name, but the pointer no member v2Checkpoint"
            yield pointer.found("DL-LCP-12", message)
        elif told not in names:
            yield pointer.found("DL-LCP-12", f"v2Checkpoint names {told!r}, which is not there")


@POINTER.checks("DL-BYTE-05")
def the_pointer_ends_with_a_newline(pointer: Document) -> Iterator[Found]:
    if pointer.data and not pointer.data.endswith(b"\n"):
        message = "the file does not end with a newline"
        yield pointer.found("DL-BYTE-05", message, at_most=Severity.INFO)


def _hint(pointer: Document) -> CheckpointHint | None:
    hint = parse_last_checkpoint(pointer.data)
    return None if isinstance(hint, UnusableHint) else hint


def _checkpoints(pointer: Document) -> tuple[Checkpoint, ...]:
    hint = _hint(pointer)
    return pointer.log.listing.checkpoints.get(hint.version, ()) if hint else ()


def _scans(pointer: Document) -> list[CheckpointScan]:
    names = [checkpoint.names[0] for checkpoint in _checkpoints(pointer)]
    found = [pointer.log.scans[name] for name in names if name in pointer.log.scans]
    return [scan for scan in found if scan.is_readable]


def _is_multi_part(checkpoint: Checkpoint) -> bool:
    return isinstance(checkpoint.files[0].path, MultiPartCheckpoint)


def _inline_counts(scans: list[CheckpointScan], told: int) -> Severity | None:
    """Older writers counted the top-level file alone, or bytes: known, and harmless to readers."""
    tops = {scan.actions - scan.counts["add"] - scan.counts["remove"] for scan in scans}
    sizes = {scan.size_bytes for scan in scans}
    return Severity.WARNING if told in tops | sizes else None
