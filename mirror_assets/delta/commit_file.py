"""Commit files: actions to bytes and back, without losing one.

`encode` writes the canonical form of section 13 of the rules (Delta Spark's key order, no blanks,
null members left out, a newline after every line). `decode` keeps the raw line wherever the
canonical form of what it understood differs from it, so that `encode_lines` gives the file back
byte for byte.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from mirror_assets.delta.actions import (
    ACTION_NAMES,
    ACTION_TYPES,
    INT64_MAX,
    Action,
    CommitInfo,
    UnknownAction,
)
from mirror_assets.errors import MalformedActionError

#: written beside the digest of a commit: which rules made its bytes
SERIALIZER_VERSION: Final = 1
#: the rule that says what types the members of an action have
TYPE_RULES: Final = {
    "add": "DL-ADD-01",
    "remove": "DL-REM-01",
    "metaData": "DL-META-01",
    "protocol": "DL-PROT-01",
    "txn": "DL-TXN-01",
    "domainMetadata": "DL-DOM-01",
    "cdc": "DL-CDC-01",
    "checkpointMetadata": "DL-CPM-01",
    "sidecar": "DL-SC-01",
}

_COMMIT_INFO_ORDER: Final = (
    "version",
    "inCommitTimestamp",
    "timestamp",
    "userId",
    "userName",
    "operation",
    "operationParameters",
    "job",
    "notebook",
    "clusterId",
    "readVersion",
    "isolationLevel",
    "isBlindAppend",
    "dataChange",
    "operationMetrics",
    "userMetadata",
    "tags",
    "engineInfo",
    "txnId",
    "lastManifestCommit",
)
_KNOWN_MEMBERS: Final[dict[type[Any], frozenset[str]]] = {
    kind: frozenset(f.encode_name for f in msgspec.structs.fields(kind)) - {"(extra)"}
    for kind in ACTION_NAMES
    if kind is not CommitInfo
}
_STRUCT_NAMES: Final = {kind: name for kind, name in ACTION_NAMES.items() if kind is not CommitInfo}
_ENCODER: Final = msgspec.json.Encoder()
_ESCAPE: Final = re.compile(rb"\\(?:u00([0-9a-f]{2})|.)")
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_BLANKS: Final = re.compile(r"\s*")
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """One action and, where its canonical form is another, the line it was read from."""

    action: Action
    raw: str | None = None

    def encode(self) -> bytes:
        """The line's bytes, without its newline."""
        return encode_action(self.action) if self.raw is None else self.raw.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFile:
    """A decoded commit file."""

    lines: list[Line]
    final_newline: bool = True
    #: the file itself, where its lines alone cannot give it back (blank lines, one action over
    #: several lines)
    raw: bytes | None = None

    @property
    def actions(self) -> list[Action]:
        """What the lines say."""
        return [line.action for line in self.lines]

    def encode(self) -> bytes:
        """The file's bytes, as they were read."""
        if self.raw is not None:
            return self.raw
        return join_lines((line.encode() for line in self.lines), final_newline=self.final_newline)


def encode(actions: Iterable[Action]) -> bytes:
    """The canonical commit file of the actions, in the given order; raises as `encode_action`."""
    actions = list(actions)
    try:
        return _upper_case_escapes(_ENCODER.encode_lines(_wire(actions)))
    except (UnicodeEncodeError, TypeError, msgspec.MsgspecError):  # found again, and named
        return join_lines(map(encode_action, actions))


def join_lines(lines: Iterable[bytes], *, final_newline: bool = True) -> bytes:
    """Lines to a file."""
    body = b"\n".join(lines)
    return body + b"\n" if final_newline and body else body


def encode_action(action: Action) -> bytes:
    """The canonical line of one action, without newline.

    Raises MalformedActionError for what JSON cannot say (a lone surrogate).
    """
    try:
        match action:
            case CommitInfo():
                return canonical_json({"commitInfo": _ordered_commit_info(action.fields)})
            case UnknownAction():
                return canonical_json(action.fields)
            case _:
                return _upper_case_escapes(_encode_struct(action))
    except (UnicodeEncodeError, TypeError, msgspec.MsgspecError) as exc:
        name = ACTION_NAMES.get(type(action), "unknown")
        message = f"the {name} action cannot be written as JSON: {exc}"
        raise MalformedActionError(message, rule="DL-CMT-02") from exc


def canonical_json(value: Any) -> bytes:
    """Compact JSON as Jackson writes it: members in their order, upper-case escapes."""
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError as exc:
        message = f"cannot be written as JSON: {exc}"
        raise MalformedActionError(message, rule="DL-CMT-14") from exc
    if b"null" not in text and b"\\" not in text:
        return text
    if _has_infinite(value):
        message = "NaN and Infinity cannot be written as JSON"
        raise MalformedActionError(message, rule="DL-CMT-14")
    return _upper_case_escapes(text)


def decode(data: bytes, *, strict: bool = False) -> CommitFile:
    """Read a commit file.

    Lenient by default, as the reference reader is: what it understands is decoded, and the raw
    line is kept where needed. `strict` is for actions that are about to be committed: each line
    must be one action with the protocol's types, and nothing in it may get lost.

    Raises MalformedActionError with the number of the line.
    """
    pieces = data.split(b"\n")
    final_newline = pieces[-1] == b""
    if final_newline:
        pieces.pop()
    lines: list[Line] = []
    for number, piece in enumerate(pieces, start=1):
        if not piece or piece.isspace():
            continue
        try:
            lines.append(decode_line(piece, strict=strict))
        except MalformedActionError as exc:
            multi_line = None if strict else _decode_multi_line(data)
            if multi_line is None:
                exc.message = f"line {number}: {exc.message}"
                raise
            return multi_line
    raw = None if len(lines) == len(pieces) or strict else data
    return CommitFile(lines=lines, final_newline=final_newline or not data, raw=raw)


def decode_line(piece: bytes, *, strict: bool = False) -> Line:
    """One line, without its newline."""
    try:
        value = orjson.loads(piece)
    except orjson.JSONDecodeError as exc:
        if strict:
            raise _malformed(f"not a JSON object: {exc}") from exc
        return Line(_action_of(_tolerant_loads(piece), strict=False), _text(piece))
    action = _action_of(value, strict=strict)
    canonical = encode_action(action)
    if strict:
        _refuse_loss(piece, value, canonical)
        return Line(action)
    return Line(action, None if canonical == piece else _text(piece))


def _wire(actions: list[Any]) -> Iterator[object]:
    """What msgspec writes as the actions' lines, one at a time.

    A list of so many small objects would set the garbage collector off.
    """
    names = _STRUCT_NAMES
    return (
        {names[type(action)]: action}
        if type(action) in names and not action.extra
        else msgspec.Raw(encode_action(action))
        for action in actions
    )


def _encode_struct(action: Action) -> bytes:
    name = ACTION_NAMES[type(action)].encode()
    extra: dict[str, Any] = getattr(action, "extra", {})
    if not extra:
        return b'{"%b":%b}' % (name, _ENCODER.encode(action))
    bare = _ENCODER.encode(msgspec.structs.replace(action, extra={}))
    return b'{"%b":%b,%b}' % (name, bare[:-1], canonical_json(extra)[1:])


def _has_infinite(value: Any) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(map(_has_infinite, value.values()))
        case list() | tuple():
            return any(map(_has_infinite, value))
    return False


def _ordered_commit_info(fields: dict[str, Any]) -> dict[str, Any]:
    known = {key: fields[key] for key in _COMMIT_INFO_ORDER if fields.get(key) is not None}
    rest = {key: value for key, value in fields.items() if key not in _COMMIT_INFO_ORDER}
    return known | rest


def _upper_case_escapes(line: bytes) -> bytes:
    # From its end: `bytes` looks for one end of what it seeks, and `0` is in every number.
    if line.rfind(b"\\u00") < 0:
        return line
    return _ESCAPE.sub(lambda m: b"\\u00" + m[1].upper() if m[1] else m[0], line)


def _action_of(value: object, *, strict: bool) -> Action:
    if not isinstance(value, dict):
        raise _malformed("not a JSON object")
    names = [name for name in value if name in ACTION_TYPES and value[name] is not None]
    if len(names) > 1:
        raise _malformed(f"more than one action on a line: {', '.join(names)}", "DL-CMT-03")
    if not names:
        if strict and not any(member is not None for member in value.values()):
            raise _malformed("no action on the line", "DL-CMT-03")
        return UnknownAction(fields=value)
    name = names[0]
    if strict and len(value) > 1:
        raise _malformed(f"more than the action {name!r} on the line", "DL-CMT-03")
    body = value[name]
    if not isinstance(body, dict):
        raise _malformed(f"{name} is not a JSON object")
    if name == "commitInfo":
        return CommitInfo(body)
    return _convert(name, body, strict=strict)


def _convert(name: str, body: dict[str, Any], *, strict: bool) -> Action:
    kind = ACTION_TYPES[name]
    known = _KNOWN_MEMBERS[kind]
    extra = {key: value for key, value in body.items() if key not in known}
    plain = {key: value for key, value in body.items() if key in known} if extra else body
    try:
        action: Action = msgspec.convert(plain, kind)
    except msgspec.ValidationError as exc:
        if strict:
            raise _malformed(f"{name}: {exc}", _rule_of_types(name)) from exc
        action = _convert_leniently(name, plain)
    return msgspec.structs.replace(action, extra=extra) if extra else action


def _convert_leniently(name: str, body: dict[str, Any]) -> Action:
    """What readers accept beyond the protocol: numbers as text or `1.0`, null maps, bare stats."""
    eased = {key: _ease(value) for key, value in body.items()}
    if isinstance(eased.get("stats"), dict):
        eased["stats"] = orjson.dumps(eased["stats"]).decode()
    if name in ("add", "cdc") and eased.get("partitionValues") is None:
        eased["partitionValues"] = {}
    if name == "metaData":
        configuration = eased.get("configuration") or {}
        eased["configuration"] = {k: v for k, v in configuration.items() if v is not None}
        eased["partitionColumns"] = eased.get("partitionColumns") or []
        eased["schemaString"] = eased.get("schemaString") or ""
        eased["format"] = eased.get("format") or {}
    try:
        action: Action = msgspec.convert(eased, ACTION_TYPES[name], strict=False)
    except msgspec.ValidationError as exc:
        raise _malformed(f"{name}: {exc}", _rule_of_types(name)) from exc
    return action


def _ease(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _rule_of_types(name: str) -> str:
    return TYPE_RULES.get(name, "DL-CMT-02")


def _tolerant_loads(piece: bytes) -> object:
    """A line with a byte order mark before it or bytes after it, as Jackson reads it."""
    try:
        value, _ = json.JSONDecoder().raw_decode(_text(piece.removeprefix(_BOM)).lstrip())
    except (json.JSONDecodeError, RecursionError) as exc:
        raise _malformed(f"not a JSON object: {exc}") from exc
    return value


def _decode_multi_line(data: bytes) -> CommitFile | None:
    """Pretty-printed actions, each over several lines; None if it is not that either."""
    try:
        values = list(_json_values(_text(data.removeprefix(_BOM))))
        lines = [Line(_action_of(value, strict=False)) for value in values]
    except (json.JSONDecodeError, RecursionError, MalformedActionError):
        return None
    return CommitFile(lines=lines, raw=data)


def _json_values(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    position = _BLANKS.match(text).end()  # type: ignore[union-attr] # it matches everywhere
    while position < len(text):
        value, end = decoder.raw_decode(text, position)
        yield value
        position = _BLANKS.match(text, end).end()  # type: ignore[union-attr] # it matches everywhere


def _refuse_loss(piece: bytes, value: dict[str, Any], canonical: bytes) -> None:
    """A line to be committed may be reordered and freed of nulls, nothing else."""
    if canonical == piece and not _LONG_NUMBER.search(piece):
        return
    json.loads(_text(piece), parse_int=_int64, object_pairs_hook=_distinct)
    if _without_nulls(orjson.loads(canonical)) != _without_nulls(value):
        raise _malformed("members of it would be lost, for the protocol does not know them")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _int64(text: str) -> int:
    number = int(text)
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise _malformed(f"the integer {text} does not fit 64 bit", "DL-CMT-14")
    return number


def _distinct(members: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(members)
    if len(value) != len(members):
        raise _malformed("a member is there twice", "DL-CMT-13")
    return value


def _text(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError as exc:
        raise _malformed(f"not UTF-8: {exc}", "DL-CMT-01") from exc


def _malformed(message: str, rule: str = "DL-CMT-02") -> MalformedActionError:
    return MalformedActionError(message, rule=rule)
