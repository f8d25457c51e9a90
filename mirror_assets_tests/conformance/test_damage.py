"""Twenty healthy logs, and every kind of damage to each: the rule that is broken is named."""

from __future__ import annotations

from functools import cache

import pytest

from mirror_assets.conformance.checks import checked_rules
from mirror_assets.conformance.rulebook import Profile, rulebook
from mirror_assets.conformance.validator import verify_log
from mirror_assets_tests.conformance.damage import DAMAGES
from mirror_assets_tests.conformance.healthy import healthy
from mirror_assets_tests.conformance.logs import MemoryLog
from mirror_assets_tests.conformance.shapes import SHAPES, Shape


@cache
def sound(shape: Shape) -> MemoryLog:
    return healthy(shape)


def findings(log: MemoryLog) -> list[tuple[str, str]]:
    report = verify_log(log, profile=Profile.STRICT, read_data=log.data.get)
    return [(finding.rule, finding.message) for finding in report.findings]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_healthy_log_has_no_findings(shape: Shape) -> None:
    assert findings(sound(shape)) == []


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_by_its_rule_in_every_log_it_applies_to(name: str) -> None:
    rule, damage = DAMAGES[name]
    damaged = {}
    for shape in SHAPES:
        log = sound(shape).copy()
        if damage(log) is not False:
            damaged[shape.name] = findings(log)
    assert damaged, "no healthy log can be damaged so"
    missed = {shape: found for shape, found in damaged.items() if rule not in dict(found)}
    assert missed == {}


def test_there_are_enough_kinds_and_each_names_a_rule_of_the_book() -> None:
    assert len(SHAPES) >= 20
    assert len(DAMAGES) >= 60
    assert {rule for rule, _ in DAMAGES.values()} <= rulebook().keys()


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_log_can_be_damaged_in_sixty_ways(shape: Shape) -> None:
    applied = [
        name for name, (_, damage) in DAMAGES.items() if damage(sound(shape).copy()) is not False
    ]
    assert len(applied) >= 60


def test_every_rule_that_claims_to_be_checked_finds_some_damage() -> None:
    assert checked_rules().keys() == {rule for rule, _ in DAMAGES.values()}
