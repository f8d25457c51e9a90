"""Which sidecars a V2 checkpoint names again, and which it writes anew.

Files are put in sidecars by the commit that added them, tombstones by the commit that removed. So
a sidecar stays true as long as none of its actions leaves the state: the cost of a checkpoint
follows the change, not the table. Actions never join a range of the past, they only leave it; a
range that still counts as many as its sidecar holds therefore holds the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from mirror_assets.delta.actions import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: a commit's version, and the place of an action in it
Key = tuple[int, int]

_SMALLEST_TARGET: Final = 20_000
_MOST_SIDECARS: Final = 64
_TAG: Final = "mirrorAssets."


class FileKind(StrEnum):
    """What a sidecar holds; never both."""

    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Actions from one key to another, both included."""

    first: Key
    last: Key


class Weight(NamedTuple):
    """How many file actions of a commit are part of the state, and where they lie in it."""

    version: int
    files: int
    first_ordinal: int
    last_ordinal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The actions of one sidecar: to be written, or in a sidecar that is there already."""

    kind: FileKind
    within: KeyRange
    #: exact but for the pieces of a large commit
    files: int
    kept: KnownSidecar | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSidecar:
    """What we said of a sidecar, in its own tags, when we wrote it."""

    action: Sidecar
    kind: FileKind
    within: KeyRange
    files: int
    #: the sum of the sizes of its adds
    size_bytes: int
    #: tells sidecars apart whose columns or codec differ
    layout: str

    @property
    def part(self) -> Part:
        """As a part of the next checkpoint."""
        return Part(kind=self.kind, within=self.within, files=self.files, kept=self)

    @classmethod
    def read(cls, action: Sidecar) -> KnownSidecar | None:
        """By the tags; None for a sidecar that is not ours."""
        tags = {name.removeprefix(_TAG): text for name, text in (action.tags or {}).items()}
        try:
            return cls(
                action=action,
                kind=FileKind(tags["kind"] or ""),
                within=KeyRange(_key(tags["first"]), _key(tags["last"])),
                files=int(tags["files"] or ""),
                size_bytes=int(tags["sizeBytes"] or ""),
                layout=tags["layout"] or "",
            )
        except (KeyError, ValueError):
            return None


def sidecar_tags(part: Part, *, files: int, size_bytes: int, layout: str) -> dict[str, str | None]:
    """The tags from which `KnownSidecar.read` learns."""
    values = {
        "kind": part.kind.value,
        "first": _text(part.within.first),
        "last": _text(part.within.last),
        "files": str(files),
        "sizeBytes": str(size_bytes),
        "layout": layout,
    }
    return {_TAG + name: value for name, value in values.items()}


def target_files(total: int) -> int:
    """How many actions a sidecar should hold; it doubles when there would be too many sidecars."""
    target = _SMALLEST_TARGET
    while target * _MOST_SIDECARS < total:
        target *= 2
    return target


def plan_adds(
    known: Iterable[KnownSidecar], lost: Sequence[Key], added: Iterable[Weight], target: int
) -> list[Part]:
    """The parts of the live files.

    `known` are the earlier checkpoint's sidecars, `lost` the keys of files that have gone since,
    ascending, and `added` counts what commits since then brought.
    """
    kept = [part for sidecar in known if (part := _without(sidecar, lost)).files]
    return _merged([*_ordered(kept), *_cut(FileKind.ADD, added, target)], target)


def plan_removes(
    known: Iterable[KnownSidecar], standing: Sequence[Weight], target: int
) -> list[Part]:
    """The parts of the tombstones; `standing` counts all of them, by commit."""
    weights = {weight.version: weight for weight in standing}
    parts: list[Part] = []
    for group in _groups(sorted(known, key=lambda sidecar: sidecar.within.first)):
        first, last = group[0].within.first[0], group[-1].within.last[0]
        here = [weights.pop(version) for version in list(weights) if first <= version <= last]
        if sum(weight.files for weight in here) == sum(sidecar.files for sidecar in group):
            parts += [sidecar.part for sidecar in group]
        else:
            parts += _cut(FileKind.REMOVE, here, target)
    rest = _cut(FileKind.REMOVE, weights.values(), target)
    return _merged(_ordered([*parts, *rest]), target)


def _without(sidecar: KnownSidecar, lost: Sequence[Key]) -> Part:
    within = sidecar.within
    count = bisect_right(lost, within.last) - bisect_left(lost, within.first)
    if not count:
        return sidecar.part
    return Part(kind=sidecar.kind, within=within, files=sidecar.files - count)


def _groups(known: Sequence[KnownSidecar]) -> Iterator[list[KnownSidecar]]:
    """Sidecars that share a commit stand together: its count is that of all of them."""
    group: list[KnownSidecar] = []
    for sidecar in known:
        if group and group[-1].within.last[0] != sidecar.within.first[0]:
            yield group
            group = []
        group.append(sidecar)
    if group:
        yield group


def _cut(kind: FileKind, weights: Iterable[Weight], target: int) -> Iterator[Part]:
    """Commits gathered up to the target; one that is larger is cut by its ordinals."""
    gathered: list[Weight] = []
    files = 0
    for weight in weights:
        if gathered and files + weight.files > target:
            yield _part(kind, gathered)
            gathered, files = [], 0
        if weight.files > target:
            yield from _pieces(kind, weight, target)
        else:
            gathered.append(weight)
            files += weight.files
    if gathered:
        yield _part(kind, gathered)


def _part(kind: FileKind, weights: Sequence[Weight]) -> Part:
    first, last = weights[0], weights[-1]
    within = KeyRange((first.version, first.first_ordinal), (last.version, last.last_ordinal))
    return Part(kind=kind, within=within, files=sum(weight.files for weight in weights))


def _pieces(kind: FileKind, weight: Weight, target: int) -> Iterator[Part]:
    count = -(-weight.files // target)
    ordinals = weight.last_ordinal - weight.first_ordinal + 1
    bounds = [weight.first_ordinal + ordinals * i // count for i in range(count + 1)]
    for start, end in pairwise(bounds):
        within = KeyRange((weight.version, start), (weight.version, end - 1))
        yield Part(kind=kind, within=within, files=weight.files // count)


def _merged(parts: Iterable[Part], target: int) -> list[Part]:
    """Neighbours joined where both are small.

    A part joins its left neighbour only if that is not much larger: so files are written anew
    ever more rarely, the longer they are there, and few small parts remain.
    """
    merged: list[Part] = []
    for part in parts:
        joined = part
        while merged and _belong_together(merged[-1], joined, target):
            left = merged.pop()
            within = KeyRange(left.within.first, joined.within.last)
            joined = Part(kind=part.kind, within=within, files=left.files + joined.files)
        merged.append(joined)
    return merged


def _belong_together(left: Part, right: Part, target: int) -> bool:
    fits = 2 * (left.files + right.files) <= 3 * target
    return fits and left.files <= 2 * right.files


def _ordered(parts: Iterable[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: part.within.first)


def _key(text: str | None) -> Key:
    version, _, ordinal = (text or "").partition(":")
    return int(version), int(ordinal)


def _text(key: Key) -> str:
    return f"{key[0]}:{key[1]}"
