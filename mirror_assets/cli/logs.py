"""Logs go to stderr, so that stdout holds the answer and nothing else."""

from __future__ import annotations

import io
import logging
import sys
from typing import Final, TextIO, cast

import structlog


class _CurrentStderr(io.TextIOBase):
    """Whatever stderr is when a line is written: it may be another one by then."""

    def write(self, text: str, /) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


_CURRENT_STDERR: Final = cast("TextIO", _CurrentStderr())


def log_to_stderr(level: str) -> None:
    """Set up both roads: structlog, which prints to stdout by default, and the standard one."""
    threshold = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(
        stream=_CURRENT_STDERR,
        level=threshold,
        format="%(levelname)s %(name)s %(message)s",
        force=True,
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(_CURRENT_STDERR),
    )
