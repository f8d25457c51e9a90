"""Files that the caller names."""

from __future__ import annotations

from pathlib import Path

import typer

from mirror_assets.cli.exits import UsageError


def read_bytes(path: Path) -> bytes:
    """The file, or stdin for `-`; UsageError if it cannot be read."""
    if str(path) == "-":
        return typer.get_binary_stream("stdin").read()
    try:
        return path.read_bytes()
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        message = f"{str(path)!r} cannot be read: {reason}"
        raise UsageError(message, remedy="check the path") from exc


def require_folder(path: Path) -> None:
    """UsageError where a file would have no directory: asked before the work."""
    if not path.parent.is_dir():
        message = f"{str(path)!r} cannot be written: there is no directory {str(path.parent)!r}"
        raise UsageError(message, remedy="make the directory, or name another")


def write_bytes(path: Path, data: bytes) -> None:
    """Write the file; UsageError if that is not possible."""
    try:
        path.write_bytes(data)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        message = f"{str(path)!r} cannot be written: {reason}"
        raise UsageError(message, remedy="check the path") from exc
