"""What an error code means: the texts behind `mirror-assets explain`.

The rules have a book of their own, `conformance/rulebook.toml`.
"""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass

from mirror_assets.errors import MirrorAssetsError, TransientError


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A code, or a rule of the book, what it means, and the way out."""

    code: str
    name: str
    meaning: str
    remedy: str
    retry: bool | None = None


def explain_code(text: str) -> Explanation | None:
    """The explanation of an error code; None for what is none."""
    wanted = text.strip().upper()
    kind = error_codes().get(wanted)
    if kind is not None:
        return Explanation(
            code=wanted,
            name=kind.__name__,
            meaning=inspect.getdoc(kind) or "",
            remedy=kind.default_remedy or "the message of the error says what to do",
            retry=issubclass(kind, TransientError),
        )
    return None


def error_codes() -> dict[str, type[MirrorAssetsError]]:
    """Every error that has been defined, by its code."""
    found: dict[str, type[MirrorAssetsError]] = {}
    waiting: list[type[MirrorAssetsError]] = [MirrorAssetsError]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if "code" in vars(kind):
            found[kind.code] = kind
    return dict(sorted(found.items()))


def close_codes(text: str) -> list[str]:
    """Codes that the text may have meant."""
    return difflib.get_close_matches(text.strip().upper(), error_codes(), n=3)
