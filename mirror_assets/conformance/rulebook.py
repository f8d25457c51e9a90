"""The rule book: every rule of a Delta log, what it says, and how much it weighs for whom.

`rulebook.toml` is the list. A rule is checked by a function of this package, or holds by the way
our writers work (`construction` names the test that shows it), or cannot be told from a log
(`unchecked` says why); the book says which. `docs/conformance.md` is made from it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from mirror_assets.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE: Final = "rulebook.toml"


class Level(StrEnum):
    """Who asks for a rule."""

    MUST = "M"
    SHOULD = "S"
    #: not in the protocol, but the reference implementation or a common reader stumbles
    READERS = "R"
    INFORMATIVE = "I"


class Profile(StrEnum):
    """Whose log it is, and so how much a rule weighs."""

    #: written by us: what readers stumble over is an error, too
    STRICT = "strict"
    #: written by anybody
    FOREIGN = "foreign"
    #: only what makes readers fail or see something else
    READ = "read"


_WEIGHTS: Final[Mapping[Profile, Mapping[Level, Severity]]] = {
    Profile.STRICT: {
        Level.MUST: Severity.ERROR,
        Level.READERS: Severity.ERROR,
        Level.SHOULD: Severity.WARNING,
        Level.INFORMATIVE: Severity.INFO,
    },
    Profile.FOREIGN: {
        Level.MUST: Severity.ERROR,
        Level.READERS: Severity.WARNING,
        Level.SHOULD: Severity.INFO,
        Level.INFORMATIVE: Severity.INFO,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Rules about one thing."""

    name: str
    about: str
    #: the part of the protocol that speaks of it
    section: str
    #: what to do about a finding, where its rule has nothing more special to say
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the book."""

    id: str
    level: Level
    says: str
    #: a line of PROTOCOL.md (`P219`), a code base, or `measured`
    source: str
    family: Family
    own_remedy: str = ""
    #: readers fail or see something else where it is broken
    breaks_reading: bool = False
    #: only about what we write ourselves
    ours_only: bool = False
    #: a breach is found under this rule, which says the same or more
    found_as: str = ""
    #: what else than a check of the log looks at it
    checked_by: str = ""
    #: the test that shows that our writers keep it
    construction: str = ""
    #: why a log does not tell
    unchecked: str = ""

    @property
    def remedy(self) -> str:
        """What to do about a finding."""
        return self.own_remedy or self.family.remedy

    @property
    def section(self) -> str:
        """Where the protocol speaks of it."""
        return self.family.section

    def severity(self, profile: Profile, at_most: Severity | None = None) -> Severity | None:
        """How much a breach weighs; None if the profile does not ask for the rule.

        `at_most` is for a breach that is known to be harmless.
        """
        if profile is Profile.READ:
            weight = Severity.ERROR if self.breaks_reading else None
        elif profile is Profile.FOREIGN and self.ours_only:
            weight = None
        else:
            weight = _WEIGHTS[profile][self.level]
        if weight is None or at_most is None:
            return weight
        if profile is Profile.READ:
            return None
        return max(weight, at_most, key=_MILDEST_LAST.index)


_MILDEST_LAST: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


@cache
def rulebook() -> Mapping[str, Rule]:
    """All rules by their id, in the book's order."""
    document = tomllib.loads(resources.files(__package__).joinpath(_FILE).read_text("utf-8"))
    families = {
        name: Family(name=name, **members) for name, members in document["families"].items()
    }
    rules = (_rule(name, members, families) for name, members in document["rules"].items())
    return MappingProxyType({rule.id: rule for rule in rules})


def families() -> Mapping[str, Family]:
    """All families by their name, in the book's order."""
    return {rule.family.name: rule.family for rule in rulebook().values()}


def family_name(rule: str) -> str:
    """`DL-ADD` of `DL-ADD-02`."""
    return rule.rpartition("-")[0]


def _rule(name: str, members: dict[str, Any], families: Mapping[str, Family]) -> Rule:
    told = {"own_remedy" if key == "remedy" else key: value for key, value in members.items()}
    level = Level(told.pop("level"))
    return Rule(id=name, level=level, family=families[family_name(name)], **told)
