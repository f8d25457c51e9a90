"""Many rows of a table, held column by column: how large commits travel to their table.

A list for each column is made much faster than a tuple for each row, and it is what Arrow and
binary COPY want. Whoever wants rows gets them while iterating.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

Row = tuple[Any, ...]


class Columns(Sequence[Row]):
    """Rows of one table, in the order of its columns."""

    __slots__ = ("values",)

    def __init__(self, values: Sequence[Sequence[Any]]) -> None:
        self.values = values

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]]) -> Self:
        """The rows, turned round unless they are columns already."""
        return rows if isinstance(rows, cls) else cls(list(zip(*rows, strict=True)))

    def given(self, names: Iterable[str]) -> dict[str, Sequence[Any]]:
        """The columns that hold anything, by their names: nulls need not travel."""
        named = zip(names, self.values, strict=True)
        return {name: column for name, column in named if not is_empty(column)}

    def __len__(self) -> int:
        return len(self.values[0]) if self.values else 0

    def __iter__(self) -> Iterator[Row]:
        return zip(*self.values, strict=True)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([column[index] for column in self.values])
        return tuple(column[index] for column in self.values)


def is_empty(column: Sequence[Any]) -> bool:
    """Whether no row has a value there."""
    return column.count(None) == len(column)
