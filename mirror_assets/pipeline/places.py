"""Names of data files: as Spark takes them, as Spark shows them, and as an add action has them.

A partition's directory is escaped as Hive does (`x:y` is `p=x%3Ay`), and the path of an add action
is the file's name quoted once more as a URI (`p=x%253Ay`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from mirror_assets.delta.actions import StringMap
from mirror_assets.delta.locations import Location
from mirror_assets.delta.schema import PrimitiveType
from mirror_assets.errors import WriteRefusedError

#: where Spark's tasks write before their job succeeds: Hadoop's committer, and S3A's magic one
_SCRATCH: Final = ("_temporary", "__magic")
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_SCHEMES: Final = {"s3": "s3a"}
#: what java.net.URI leaves alone in a path, beside letters and digits
_JAVA_SAFE: Final = "/;:@&=+$,-_.!~*'()"


def spark_path(location: Location, below: str = "") -> str:
    """The place as Hadoop's Path takes it: not quoted."""
    scheme = _SCHEMES.get(location.scheme, location.scheme)
    root = f"{scheme}://{location.host}{location.path.rstrip('/')}"
    return f"{root}/{below}" if below else root


def shown_by_spark(location: Location, below: str) -> str:
    """The same as `_metadata.file_path` shows it: quoted as java.net.URI does."""
    text = spark_path(location, below)
    scheme, _, rest = text.partition("://")
    return f"{scheme}://" + "".join(
        c if not c.isascii() or c.isalnum() or c in _JAVA_SAFE else quote(c, safe="") for c in rest
    )


def add_path(name: str) -> str:
    """The `path` of an add action for a file below the root."""
    return quote(name, safe="/=-_.~!$&'()*+,;@")


def file_name(path: str, location: Location) -> str:
    """The file's name below the root for the `path` of an add action.

    Raises WriteRefusedError for a file that lies elsewhere.
    """
    for root in (location.uri.rstrip("/"), spark_path(location)):
        path = path.removeprefix(f"{root}/")
    if "://" in path or path.startswith(("/", "file:")):
        message = f"the data file {path!r} does not lie below the table's root"
        raise WriteRefusedError(message, remedy="read the table with a reader of Delta")
    return unquote(path)


def is_data(name: str) -> bool:
    """Whether a file below the root is a data file: Parquet, and hidden from no reader.

    What begins with a dot or an underscore is hidden, but for a partition's `_p=1`.
    """
    *folders, last = name.split("/")
    hidden = any(part.startswith((".", "_")) and "=" not in part for part in folders)
    return last.endswith(".parquet") and not hidden and not last.startswith((".", "_"))


def is_left_behind(name: str) -> bool:
    """Whether a file is of a task whose job was never finished, and its driver never cleaned up.

    It lies in the directory of a write, in the part that goes when the job succeeds or fails.
    """
    top, *folders = name.split("/")[:-1] or [""]
    return not top.startswith((".", "_")) and any(f.startswith(_SCRATCH) for f in folders)


def partition_values(
    name: str, columns: Sequence[str], types: Mapping[str, PrimitiveType]
) -> StringMap:
    """The values that the directories of a file say, by column, in the form Delta gives them."""
    found: dict[str, str | None] = {}
    for part in name.split("/")[:-1]:
        key, equals, text = part.partition("=")
        if equals:
            found[unquote(key)] = None if text == HIVE_NULL else unquote(text)
    return {column: _delta_text(found.get(column), types[column]) for column in columns}


def _delta_text(text: str | None, kind: PrimitiveType) -> str | None:
    """A session in UTC shows a timestamp as `2026-01-01 10:00:00.5`."""
    if text is None or kind.name != "timestamp":
        return text
    return f"{text.replace(' ', 'T')}Z"
