"""`explain`: a code or rule in plain words."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mirror_assets.cli.exits import ExitCode, UsageError
from mirror_assets.cli.session import Session

if TYPE_CHECKING:
    from mirror_assets.explanations import Explanation

#: modules that define errors of their own beside `errors`
_DEFINING: Final = (
    "mirror_assets.metastore.database",
    "mirror_assets.mirror.breakers",
    "mirror_assets.storage.log_source",
)


def explain(
    session: Session,
    *,
    code: Annotated[str, typer.Argument(metavar="CODE|RULE", help="As in MA-301 or DL-ADD-02.")],
) -> ExitCode:
    """Say what an error code or a rule means, and the way out."""
    from mirror_assets.explanations import close_codes, error_codes, explain_code

    for module in _DEFINING:
        import_module(module)
    found = explain_code(code) or _rule(code)
    if found is None:
        close = ", ".join(close_codes(code)) or ", ".join(error_codes())
        message = f"{code!r} is neither an error code nor a rule"
        raise UsageError(message, remedy=f"did you mean one of: {close}?")
    session.output.record(asdict(found), found.name)
    return ExitCode.CLEAN


def _rule(code: str) -> Explanation | None:
    from mirror_assets.conformance.rulebook import rulebook
    from mirror_assets.explanations import Explanation

    rule = rulebook().get(code.strip().upper())
    if rule is None:
        return None
    where = f"Protocol: {rule.section} ({rule.source})."
    return Explanation(
        code=rule.id,
        name=f"a rule about {rule.family.about}",
        meaning=f"{rule.says}. {where}",
        remedy=rule.remedy,
    )
