"""The tables of `docs/conformance.md`, made from the rule book.

`python -m mirror_assets.conformance.guide` writes the page's generated part to standard output.
"""

from __future__ import annotations

import sys

from mirror_assets.conformance import validator  # noqa: F401 - registers the checks
from mirror_assets.conformance.checks import checked_rules
from mirror_assets.conformance.rulebook import Level, Rule, families, rulebook

_LEVELS = {
    Level.MUST: "must",
    Level.SHOULD: "should",
    Level.READERS: "readers",
    Level.INFORMATIVE: "note",
}


def guide() -> str:
    """One section per family: what to do about a finding, and each rule with how it is held."""
    sections = [_summary()]
    for family in families().values():
        rules = [rule for rule in rulebook().values() if rule.family is family]
        rows = [
            f"| {rule.id} | {_LEVELS[rule.level]} | {_cell(rule.says)} | {_held(rule)} |"
            for rule in rules
        ]
        sections.append(
            "\n".join(
                [
                    f"### {family.name}: {family.about}",
                    "",
                    f"Protocol: {family.section}. {family.remedy}",
                    "",
                    "| rule | level | says | held by |",
                    "|---|---|---|---|",
                    *rows,
                ]
            )
        )
    return "\n\n".join(sections) + "\n"


def _summary() -> str:
    counts = dict.fromkeys(("checked", "by construction", "not to be told"), 0)
    for rule in rulebook().values():
        counts[_kind(rule)] += 1
    return (
        f"Of {len(rulebook())} rules {counts['checked']} are checked, "
        f"{counts['by construction']} hold by the way our writers work, with a test that shows it, "
        f"and {counts['not to be told']} cannot be told from a log."
    )


def _kind(rule: Rule) -> str:
    if rule.construction:
        return "by construction"
    return "not to be told" if rule.unchecked else "checked"


def _held(rule: Rule) -> str:
    if rule.construction:
        file, _, test = rule.construction.partition("::")
        return f"construction: `{test}` in `{file}`"
    if rule.unchecked:
        return f"not told by a log: {_cell(rule.unchecked)}"
    if rule.found_as:
        return f"checked, found as {rule.found_as}"
    if rule.checked_by:
        return f"checked by `{rule.checked_by}`"
    return "checked: " + ", ".join(f"`{name}`" for name in checked_rules()[rule.id])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    """Print the generated part of the page."""
    sys.stdout.write(guide())


if __name__ == "__main__":
    main()
