"""Who works through the items of a bulk job: Spark, or this process. The jobs cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import orjson

Item = TypeVar("Item")
Facts = dict[str, Any]


class Runner(Protocol):
    """`pipeline.work.Workers` for Spark; `InProcess` for a table or two."""

    def run(
        self, items: Sequence[Item], task: Callable[[Item], Facts], *, slices: int | None = None
    ) -> list[Facts]:
        """Do the task on every item; the facts of each, in the order of the items.

        Raises the error of the first item that failed for good.
        """


class InProcess:
    """One item after the other, here."""

    def run(
        self, items: Sequence[Item], task: Callable[[Item], Facts], *, slices: int | None = None
    ) -> list[Facts]:
        """As `Runner` says; facts take the road through JSON that they take from Spark."""
        del slices
        return [orjson.loads(orjson.dumps(task(item))) for item in items]
