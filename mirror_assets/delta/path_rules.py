"""Rules of paths and texts: what a file may be called in a log that we write."""

from __future__ import annotations

import re
from typing import Final

from mirror_assets.delta.schema import short
from mirror_assets.errors import RuleViolationError

_URI: Final = re.compile(r"""(?:[^\x00-\x20\x7f"<>\\^`{|}\[\]%#?\ud800-\udfff]|%[0-9A-Fa-f]{2})+""")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LEAVES_ROOT: Final = re.compile(
    r"(?:^|/|\\|%2[fF]|%5[cC])(?:\.|%2[eE]){2}(?:/|\\|%2[fF]|%5[cC]|$)"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]|%00")
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
#: a directory with `=` is a partition's, whatever its column is called
_HIDDEN_DIRECTORY: Final = re.compile(r"(?:^|/)_[^/=]*/")
_CDC_DIRECTORY: Final = "_change_data/"


def check_new_path(path: str, action: str, *, is_cdc: bool = False) -> None:
    """Check the path of a file that we make known.

    A path is a URI reference: decoded once, it is the file's name, and it may not lead out of
    the table. Raises RuleViolationError (DL-ADD-02, 03, DL-FILE-16).
    """
    if type(path) is not str or not path:
        raise _breach("DL-ADD-02", f"the path of an {action} is {short(path)}")
    if _BAD_ESCAPE.search(path):
        message = f"{action} {short(path)}: `%` is not followed by two hex digits"
        raise _breach("DL-ADD-02", message, "percent-encode the path once, `%` as `%25`")
    if _LEAVES_ROOT.search(path) or "%00" in path:
        raise _breach("DL-ADD-02", f"{action} {short(path)} has a `..` segment or a NUL")
    if not _URI.fullmatch(path):
        message = f"{action} {short(path)} holds characters that a URI may not"
        raise _breach("DL-ADD-03", message, "percent-encode the path once")
    if is_absolute(path):
        return
    if is_cdc != path.startswith(_CDC_DIRECTORY):
        where = "outside of" if is_cdc else "inside of"
        raise _breach("DL-FILE-16", f"{action} {short(path)} is {where} {_CDC_DIRECTORY}")
    if not is_cdc and _HIDDEN_DIRECTORY.search(path):
        raise _breach("DL-FILE-16", f"{action} {short(path)} is in a directory that readers skip")


def check_stays_inside(path: str, action: str, rule: str) -> None:
    """Check that a path does not lead out of the table: a vacuum would follow it there."""
    if _LEAVES_ROOT.search(path) or _CONTROL.search(path):
        message = f"{action} {short(path)} has a `..` segment or a control character"
        raise _breach(rule, message, "name the file as it was added; nothing was written")


def check_text(rule: str, what: str, value: object) -> None:
    """Check that a value is a text that SQL and JSON can hold: no NUL, no lone surrogate."""
    if type(value) is not str:
        raise _breach(rule, f"{what} is {short(value)}, not a text")
    if not is_storable(value):
        raise _breach(rule, f"{what} holds a NUL or a lone surrogate: {short(value)}")


def is_absolute(path: str) -> bool:
    """Whether a path does not depend on the table's root."""
    return _ABSOLUTE.match(path) is not None


def is_storable(text: str) -> bool:
    """Whether a column of a database can hold it: no NUL, no lone surrogate."""
    return "\x00" not in text and (text.isascii() or is_encodable(text))


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can say it: no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _breach(rule: str, message: str, remedy: str | None = None) -> RuleViolationError:
    return RuleViolationError(message, rule=rule, remedy=remedy)
