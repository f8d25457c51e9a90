"""Locations of tables: many spellings of one place become one value.

A location is the place of a table's root: an absolute local path or a URI. `key` is equal exactly
when the place is, so that a UNIQUE constraint on it means one table per place; `uri` is the
percent-encoded form for programs that take URIs. Nothing here looks at a store.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from mirror_assets.errors import LocationError

_SCHEMES: Final = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "memory": "memory",
}
_URI: Final = re.compile(r"([a-z][a-z0-9+.-]*):(?://([^/]*))?(/.*)?", re.IGNORECASE | re.DOTALL)
_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")
_AZURE_HOST: Final = re.compile(rf"\$?{_HOST.pattern}@{_HOST.pattern}")
_ENCODED_TRAVERSAL: Final = re.compile(r"%(?:25)*(?:2e|2f|5c)", re.IGNORECASE)
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
#: may be a password: not repeated in messages
_USER_INFO: Final = re.compile(r"//[^/@]*@")
#: what RFC 3986 allows in a path beside letters and digits
_PATH_SAFE: Final = "/-._~!$&'()*+,;=:@"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """One place: `uri` to open it, `key` to compare it."""

    uri: str
    key: str

    @property
    def scheme(self) -> str:
        """`file`, `s3`, `gs`, `az`, `abfss` or `memory`."""
        return self.key.partition(":")[0]

    @property
    def host(self) -> str:
        """The bucket or container; empty for local files."""
        return self.key.partition("://")[2].partition("/")[0]

    @property
    def path(self) -> str:
        """The path in its store, decoded, with its leading slash; `/` for the root."""
        return "/" + self.key.partition("://")[2].partition("/")[2]

    def __str__(self) -> str:
        return self.uri


@lru_cache(maxsize=16_384)
def normalise_location(text: str) -> Location:
    """The place that the text names.

    Raises LocationError for relative paths, unknown schemes, and whatever could leave its root or
    be read in two ways: `.`, `..` and empty segments, control characters, backslashes, encoded
    dots and slashes, queries, fragments, ports and credentials.
    """
    _refuse_characters(text, text)
    if text.startswith("/"):
        return _location(text, "file", "", text)
    match = _URI.fullmatch(text)
    if match is None or match[1].lower() not in _SCHEMES:
        schemes = ", ".join(sorted(_SCHEMES))
        raise _refused(text, f"neither an absolute path nor a URI of {schemes}")
    scheme = _SCHEMES[match[1].lower()]
    if scheme == "file" and match[3] is None:
        raise _refused(text, "a file URI without an absolute path")
    return _location(text, scheme, _authority(text, scheme, match[2]), _decoded(text, match[3]))


def within(root_key: str, key: str) -> bool:
    """Whether the place `key` is `root_key` or lies below it."""
    return key == root_key or key.startswith(f"{root_key}/")


def _location(text: str, scheme: str, authority: str, path: str) -> Location:
    _refuse_characters(text, path)
    segments = path.removesuffix("/").split("/")[1:]
    if any(segment in ("", ".", "..") for segment in segments):
        raise _refused(text, "an empty, `.` or `..` segment")
    below = "".join(f"/{segment}" for segment in segments)
    root = f"{scheme}://{authority}"
    return Location(uri=root + (quote(below, safe=_PATH_SAFE) or "/"), key=root + below)


def _authority(text: str, scheme: str, given: str | None) -> str:
    host = (given or "").lower()
    if scheme == "file":
        if host not in ("", "localhost"):
            raise _refused(text, f"the host {host!r}: a file URI has none")
        return ""
    if given is None:
        raise _refused(text, f"no `//` after `{scheme}:`")
    if scheme == "memory" and not host:
        return host
    form = _AZURE_HOST if scheme == "abfss" else _HOST
    if not form.fullmatch(host):
        wanted = "container@account host" if scheme == "abfss" else "bucket or container name"
        raise _refused(text, f"the host is no {wanted}")
    return host


def _decoded(text: str, path: str | None) -> str:
    if not path:
        return "/"
    if "?" in path or "#" in path:
        raise _refused(text, "a query or fragment")
    if _BROKEN_ESCAPE.search(path):
        raise _refused(text, "a `%` without two hexadecimal digits")
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeError as exc:
        raise _refused(text, "escapes that are not UTF-8") from exc


def _refuse_characters(text: str, part: str) -> None:
    if "\\" in part:
        raise _refused(text, "a backslash")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in part):
        raise _refused(text, "a control character")
    if _ENCODED_TRAVERSAL.search(part):
        raise _refused(text, "an encoded dot, slash or backslash")


def _refused(text: str, reason: str) -> LocationError:
    shown = _USER_INFO.sub("//***@", text)
    return LocationError(f"{shown!r} cannot be a table's location: {reason}")
