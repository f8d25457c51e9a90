"""What is unusual in the adds of a checkpoint: each distinct value is looked at once.

Where the commits are there, they are judged; this is for logs whose commits are cleaned up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_assets.conformance.file_columns import Numbers
from mirror_assets.delta.actions import AddFile
from mirror_assets.delta.path_rules import check_new_path
from mirror_assets.errors import RuleViolationError

#: what nearly all paths are made of
_PLAIN: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ=+@,~._/-"
_KEPT_VALUES: Final = 10_000
_KEPT_PATHS: Final = 100
#: milliseconds from 2001 to 5138
_FIRST_MS: Final = 10**12
_LAST_MS: Final = 10**14

Values = tuple[tuple[str, str | None], ...]


@dataclass(slots=True)
class Entries:
    """What the batches of a checkpoint brought so far."""

    #: distinct partition values, each with the path of a file that has them
    partition_values: dict[Values, str] = field(default_factory=dict)
    #: the breaches of rules by paths
    paths: list[RuleViolationError] = field(default_factory=list)
    #: files whose modificationTime is no time in ms
    odd_times: int = 0
    _known: set[int] = field(default_factory=set)

    def look_at_values(
        self, maps: pa.MapArray | None, hashes: Numbers, paths: pa.StringArray
    ) -> None:
        """Keep the partition values that were not there before."""
        distinct, places = np.unique(hashes, return_index=True)
        for value, place in zip(distinct.tolist(), places.tolist(), strict=True):
            if value in self._known or len(self._known) >= _KEPT_VALUES:
                continue
            self._known.add(value)
            found = () if maps is None else tuple(maps[place].as_py() or ())
            self.partition_values[found] = paths[place].as_py()

    def look_at_paths(self, paths: pa.StringArray) -> None:
        """Take all for one text; only where something is unusual, look at each."""
        _, offsets, data = paths.buffers()
        bounds = np.frombuffer(offsets, np.int32)[paths.offset : paths.offset + len(paths) + 1]
        text = memoryview(data)[bounds[0] : bounds[-1]].tobytes()
        hidden = b"/_" in text or pc.starts_with(paths, "_").true_count
        if hidden or b".." in text or text.translate(None, _PLAIN):
            for path in paths.to_pylist():
                self._look_at_path(path)

    def look_at_times(self, times: Numbers) -> None:
        """Count those that are in seconds, microseconds, or nonsense."""
        self.odd_times += int(np.count_nonzero((times < _FIRST_MS) | (times >= _LAST_MS)))

    def look_at(self, add: AddFile) -> None:
        """All of that, for one that came as an action."""
        self.partition_values.setdefault(tuple(add.partition_values.items()), add.path)
        self._look_at_path(add.path)
        self.odd_times += not _FIRST_MS <= add.modification_time < _LAST_MS

    def _look_at_path(self, path: str) -> None:
        try:
            check_new_path(path, "add")
        except RuleViolationError as exc:
            if len(self.paths) < _KEPT_PATHS:
                self.paths.append(exc)
