"""Commit files line by line: what each says, and whether its bytes are as the protocol wants.

Nearly every line is in canonical form; decoding and encoding it again proves that in one step.
Only a line that differs is looked at member by member.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson

from mirror_assets.conformance.checks import Found
from mirror_assets.delta.actions import (
    ACTION_NAMES,
    ACTION_TYPES,
    INT64_MAX,
    Action,
    AddFile,
    CommitInfo,
    UnknownAction,
)
from mirror_assets.delta.commit_file import TYPE_RULES, decode, decode_line, encode_action
from mirror_assets.delta.schema import short
from mirror_assets.errors import MalformedActionError
from mirror_assets.findings import Severity

BOM: Final = b"\xef\xbb\xbf"
_ADD: Final = b'{"add":{'
_COMMIT_INFO: Final = b'{"commitInfo":{'
_ADDS: Final = msgspec.json.Decoder(AddFile)
_ENCODER: Final = msgspec.json.Encoder()
_WHERE: Final = re.compile(r"`\$\.?([^`]*)`")
_ESCAPE: Final = re.compile(rb"\\(?:/|u(?!00[01][0-9A-F]))")
#: members of actions that have a rule of their own
_MEMBER_RULES: Final = {
    "add.stats": "DL-STAT-01",
    "add.tags": "DL-ADD-10",
    "add.partitionValues": "DL-ADD-08",
    "add.deletionVector": "DL-DV-01",
    "add.baseRowId": "DL-ADD-11",
    "add.defaultRowCommitVersion": "DL-ADD-11",
    "add.clusteringProvider": "DL-ADD-12",
    "remove.deletionVector": "DL-DV-01",
    "metaData.configuration": "DL-META-05",
    "metaData.name": "DL-META-04",
    "metaData.description": "DL-META-04",
    "metaData.createdTime": "DL-META-04",
    "metaData.format": "DL-META-03",
}


#: a line of a commit: its number, and the action, if one could be understood
LogLine = tuple[int, Action | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLines:
    """All lines of a commit file, and what was found in their bytes."""

    lines: list[LogLine]
    found: list[Found]


def read_lines(data: bytes) -> CommitLines:
    """Understand as much of a commit file as any reader does, and note what is wrong with it."""
    found: list[Found] = []
    if data.startswith(BOM):
        found.append(Found(rule="DL-CMT-01", message="the file begins with a byte order mark"))
        data = data.removeprefix(BOM)
    pieces = data.split(b"\n")
    if data and pieces[-1]:
        message = "the last line does not end with a newline"
        found.append(Found(rule="DL-CMT-12", message=message, line=len(pieces)))
    else:
        pieces.pop()
    lines: list[LogLine] = []
    for number, piece in enumerate(pieces, start=1):
        if (plain := _plain_line(piece)) is not None:
            lines.append((number, plain))
            continue
        if not piece or piece.isspace():
            found.append(_blank(number))
            continue
        action, odd = _read_line(piece, number)
        if action is None and (spread := _read_multi_line(data)) is not None:
            return spread
        lines.append((number, action))
        found += odd
    return CommitLines(lines=lines, found=found)


def _plain_line(piece: bytes) -> Action | None:
    """The action of a line in canonical form, if it is of the most frequent kinds."""
    if piece.startswith(_ADD):
        return _plain_add(piece)
    if piece.startswith(_COMMIT_INFO):
        return _plain_commit_info(piece)
    return None


def _read_line(piece: bytes, number: int) -> tuple[Action | None, list[Found]]:
    try:
        line = decode_line(piece)
    except MalformedActionError as exc:
        return None, list(_why_unreadable(piece, exc, number))
    if line.raw is None and not isinstance(line.action, UnknownAction):
        return line.action, []
    return line.action, list(_oddities(piece, line.action, number))


def _plain_add(piece: bytes) -> AddFile | None:
    body = piece[len(_ADD) - 1 : -1]
    if b"\\u" in body:
        return None
    try:
        add = _ADDS.decode(body)
    except msgspec.MsgspecError:
        return None
    return add if not add.extra and _ENCODER.encode(add) == body and piece[-1:] == b"}" else None


def _plain_commit_info(piece: bytes) -> CommitInfo | None:
    """Its members are anything; those with a place of their own must stand in it."""
    if b"null" in piece or b"\\" in piece:
        return None
    try:
        value = orjson.loads(piece)
    except orjson.JSONDecodeError:
        return None
    fields = value["commitInfo"]
    if len(value) > 1 or orjson.dumps(value) != piece or not _is_in_order(tuple(fields)):
        return None
    return CommitInfo(fields)


@lru_cache
def _is_in_order(names: tuple[str, ...]) -> bool:
    info = CommitInfo(dict.fromkeys(names, 0))
    return tuple(orjson.loads(encode_action(info))["commitInfo"]) == names


def _why_unreadable(piece: bytes, error: MalformedActionError, number: int) -> Iterator[Found]:
    """The rule that a line breaks which even a lenient reader cannot take."""
    try:
        piece.decode()
        value = orjson.loads(piece)
    except UnicodeDecodeError as exc:
        yield Found(rule="DL-CMT-01", message=f"not UTF-8: {exc}", line=number)
        return
    except orjson.JSONDecodeError as exc:
        yield Found(rule="DL-CMT-02", message=f"not one JSON object: {exc}", line=number)
        return
    found = list(_type_breaches(value, number)) if isinstance(value, dict) else []
    if not found:
        found = [Found(rule=error.rule or "DL-CMT-02", message=error.message, line=number)]
    yield from found


def _oddities(piece: bytes, action: Action, number: int) -> Iterator[Found]:
    """What is wrong with a line that readers take, though it is not in canonical form."""
    try:
        value = orjson.loads(piece.rstrip(b"\r"))
    except orjson.JSONDecodeError as exc:
        yield Found(rule="DL-CMT-02", message=f"not one JSON object: {exc}", line=number)
        return
    broken = [
        *_repeated_members(piece, number),
        *_sibling_members(value, number),
        *_type_breaches(value, number),
        *_transient_members(value, number),
    ]
    yield from broken
    if broken or isinstance(action, UnknownAction):
        return
    if piece.endswith(b"\r"):
        message = "the line ends with CR and LF; readers accept it"
        yield Found(rule="DL-CMT-12", message=message, line=number, at_most=Severity.WARNING)
    rule = "DL-BYTE-02" if _ESCAPE.search(piece) else "DL-BYTE-01"
    how = "escapes" if rule == "DL-BYTE-02" else "blanks, nulls or the order of its members"
    message = f"{ACTION_NAMES[type(action)]} is not in canonical form: {how} differ"
    yield Found(rule=rule, message=message, line=number, at_most=Severity.WARNING)


def _repeated_members(piece: bytes, number: int) -> Iterator[Found]:
    repeated: list[str] = []

    def pairs(members: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in members]
        repeated.extend(name for name in set(names) if names.count(name) > 1)

    json.loads(piece, object_pairs_hook=pairs)
    for name in sorted(repeated):
        yield Found(rule="DL-CMT-13", message=f"{name!r} is there twice", line=number)


def _sibling_members(value: dict[str, Any], number: int) -> Iterator[Found]:
    known = [name for name in value if name in ACTION_TYPES and value[name] is not None]
    if not known:
        if any(member is not None for member in value.values()):
            message = f"the action {short(next(iter(value)))} is unknown: readers ignore it"
            mild = Severity.INFO
            yield Found(rule="DL-CMT-04", message=message, line=number, at_most=mild)
        else:
            yield Found(rule="DL-CMT-03", message="no action on the line", line=number)
    elif len(value) > 1:
        rest = sorted(set(value) - set(known))
        message = f"{rest} beside the action {known[0]!r} on one line"
        yield Found(rule="DL-CMT-03", message=message, line=number, at_most=Severity.WARNING)


def _type_breaches(value: dict[str, Any], number: int) -> Iterator[Found]:
    """Members whose type is not the protocol's, one after another."""
    for name, body in value.items():
        kind = ACTION_TYPES.get(name)
        if kind is None or name == "commitInfo" or not isinstance(body, dict):
            continue
        rest = dict(body)
        for _ in range(len(body) + 1):
            try:
                msgspec.convert(rest, kind)
                break
            except msgspec.ValidationError as exc:
                member, found = _type_breach(name, rest, exc, number)
                yield found
                if member not in rest:
                    break
                rest = {key: item for key, item in rest.items() if key != member}
                if member in {field.encode_name for field in _required(kind)}:
                    break


def _type_breach(
    action: str, body: dict[str, Any], error: msgspec.ValidationError, number: int
) -> tuple[str, Found]:
    where = _WHERE.search(str(error))
    path = where[1] if where else ""
    member = re.split(r"[.\[]", path)[0]
    value = body.get(member)
    if member and member in body and _is_number_in_disguise(value, path == member):
        rule = "DL-CMT-14"
    elif body.get(member) is None and member != "stats":
        rule = TYPE_RULES[action]
    else:
        rule = _MEMBER_RULES.get(f"{action}.{member}", TYPE_RULES[action])
    message = f"{action}: {error}"
    return member, Found(rule=rule, message=message, line=number)


def _is_number_in_disguise(value: Any, whole: bool) -> bool:  # noqa: FBT001 - private
    """An integer as text, with a decimal point, or too large for 64 bit."""
    if not whole:
        return False
    match value:
        case str():
            return re.fullmatch(r"-?\d+", value) is not None
        case float():
            return value.is_integer()
        case bool():
            return False
        case int():
            return not -INT64_MAX - 1 <= value <= INT64_MAX
    return False


def _required(kind: type[Any]) -> list[msgspec.structs.FieldInfo]:
    return [field for field in msgspec.structs.fields(kind) if field.required]


def _transient_members(value: dict[str, Any], number: int) -> Iterator[Found]:
    for name in ("add", "remove"):
        body = value.get(name)
        vector = body.get("deletionVector") if isinstance(body, dict) else None
        if isinstance(vector, dict) and vector.get("maxRowIndex") is not None:
            message = f"{name}: deletionVector.maxRowIndex is transient and not for the log"
            yield Found(rule="DL-DV-08", message=message, line=number)


def _read_multi_line(data: bytes) -> CommitLines | None:
    """Actions over several lines each, as nobody should print them, and many readers take them."""
    try:
        file = decode(data)
    except MalformedActionError:
        return None
    message = "actions are spread over several lines each"
    found = [Found(rule="DL-CMT-02", message=message, line=1)]
    return CommitLines(lines=list(enumerate(file.actions, start=1)), found=found)


def _blank(number: int) -> Found:
    message = "the line is blank; Trino refuses it"
    return Found(rule="DL-CMT-02", message=message, line=number, at_most=Severity.WARNING)
