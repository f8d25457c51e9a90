"""What checks are made of: what one found, and the register of which function checks which rules.

A check is a small function from a view of the log (its listing, one commit, one checkpoint, ...)
to what it found there. Each says by `@checks` which rules it speaks for; the validator hands each
view to the functions of its kind, and so a log is read once, however many rules there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from mirror_assets.errors import MirrorAssetsError
from mirror_assets.findings import Finding, Severity

View = TypeVar("View")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A breach of a rule, before a profile has weighed it."""

    rule: str
    message: str
    version: int | None = None
    file: str | None = None
    #: the line of a commit, or the row of a checkpoint, counted from 1
    line: int | None = None
    #: for a breach that is known to be harmless
    at_most: Severity | None = None


Check = Callable[[View], Iterator[Found]]


class About(Protocol):
    """What a view says of itself, so that only the checks are asked that may find something."""

    @property
    def kinds(self) -> frozenset[type]:
        """The kinds of actions in it."""

    @property
    def features(self) -> frozenset[str]:
        """What the protocol in force promises."""

    @property
    def is_ordinary(self) -> bool:
        """Whether there is nothing remarkable in its form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a check has something to look at."""

    #: actions of one of these kinds; empty for any
    when: frozenset[type] = frozenset()
    #: tables with this feature
    feature: str | None = None
    #: views of an ordinary form, too
    ordinary: bool = True

    def covers(self, view: About) -> bool:
        """Whether the check must be asked about the view."""
        return (
            (not self.when or bool(self.when & view.kinds))
            and (self.feature is None or self.feature in view.features)
            and (self.ordinary or not view.is_ordinary)
        )


_Plan = list[Callable[[View], Iterator[Found]]]


@dataclass(frozen=True, slots=True)
class CheckList(Generic[View]):
    """The checks of one kind of view, in the order of their registration."""

    kind: str
    functions: list[tuple[Callable[[View], Iterator[Found]], tuple[str, ...]]] = field(
        default_factory=list
    )
    _scopes: dict[Callable[[View], Iterator[Found]], Scope] = field(default_factory=dict)
    _plans: dict[tuple[object, ...], _Plan[View]] = field(default_factory=dict)

    def checks(
        self,
        *rules: str,
        when: tuple[type, ...] = (),
        feature: str | None = None,
        ordinary: bool = True,
    ) -> Callable[[Callable[[View], Iterator[Found]]], Callable[[View], Iterator[Found]]]:
        """Register a function as the check of these rules.

        With `when`, it is asked only about what holds actions of one of these kinds, with
        `feature` only about tables that have it, and without `ordinary` only about what is not.
        """

        def register(
            function: Callable[[View], Iterator[Found]],
        ) -> Callable[[View], Iterator[Found]]:
            self.functions.append((function, rules))
            scope = Scope(when=frozenset(when), feature=feature, ordinary=ordinary)
            self._scopes[function] = scope
            return function

        return register

    def run(self, view: View) -> Iterator[Found]:
        """All that the functions find."""
        for function, _ in self.functions:
            yield from function(view)

    def run_about(self, view: View, about: About) -> Iterator[Found]:
        """The same, of those functions whose scope covers what the view says of itself."""
        alike = (about.kinds, about.features, about.is_ordinary)
        plan = self._plans.get(alike)
        if plan is None:
            plan = [function for function, scope in self._scopes.items() if scope.covers(about)]
            self._plans[alike] = plan
        for function in plan:
            yield from function(view)


#: checks of each kind of view
LOG: Final[CheckList[Any]] = CheckList("log")
COMMIT: Final[CheckList[Any]] = CheckList("commit")
CHECKPOINT: Final[CheckList[Any]] = CheckList("checkpoint")
POINTER: Final[CheckList[Any]] = CheckList("pointer")
CHECKSUM: Final[CheckList[Any]] = CheckList("version checksum")
COMPACTION: Final[CheckList[Any]] = CheckList("compaction")
#: the state at the newest version, when all is read
END: Final[CheckList[Any]] = CheckList("end")
ALL: Final = (LOG, COMMIT, CHECKPOINT, POINTER, CHECKSUM, COMPACTION, END)


def checked_rules() -> dict[str, tuple[str, ...]]:
    """Each rule that is checked, with the names of the functions that do."""
    found: dict[str, tuple[str, ...]] = {}
    for checks in ALL:
        for function, rules in checks.functions:
            for rule in rules:
                found[rule] = (*found.get(rule, ()), function.__name__)
    return found


def found_in(error: MirrorAssetsError, **place: Any) -> Found:
    """What an error of the pure rules says, as a finding."""
    return Found(rule=error.rule or "DL-CMT-02", message=error.message, **place)


def found_as(finding: Finding, **place: Any) -> Found:
    """What the pure rules found odd; a mere warning of theirs stays one."""
    mild = None if finding.severity is Severity.ERROR else finding.severity
    return Found(rule=finding.rule, message=finding.message, at_most=mild, **place)
