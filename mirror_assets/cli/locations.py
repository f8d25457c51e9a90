"""Locations as people type them: made absolute, and held to the allowed roots."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror_assets.delta.locations import Location, normalise_location
from mirror_assets.errors import LocationError, TableExistsError
from mirror_assets.storage.stores import open_store

if TYPE_CHECKING:
    from mirror_assets.settings import Settings

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")


def require_location(text: str, settings: Settings) -> Location:
    """The place that the text names, seen from the working directory.

    Raises LocationError for what cannot be one (`..` is refused, not resolved), or lies outside of
    the allowed roots, also by way of a link.
    """
    place = normalise_location(_absolute(text))
    if not settings.allows(place) or not _allows_target(settings, place):
        roots = ", ".join(settings.allowed_roots)
        message = f"{place} lies outside of the allowed roots"
        raise LocationError(message, remedy=f"choose a place below {roots}")
    return place


def refuse_foreign_log(place: Location, settings: Settings, remedy: str) -> None:
    """Raise TableExistsError where a log lies already that is none of ours."""
    listing = open_store(place, settings.store_options(), allowed_roots=()).list()
    if listing.commits or listing.checkpoints:
        raise TableExistsError(f"there is a Delta table at {place} already", remedy=remedy)


def _absolute(text: str) -> str:
    if not text or _ABSOLUTE.match(text):
        return text
    relative = re.sub(r"^(?:\./+)+", "", text)
    here = str(Path.cwd())
    return here if relative in ("", ".") else f"{here}/{relative}"


def _allows_target(settings: Settings, place: Location) -> bool:
    if not settings.allowed_roots or place.scheme != "file":
        return True
    roots = [normalise_location(root) for root in settings.allowed_roots]
    targets = [Path(root.path).resolve() for root in roots if root.scheme == "file"]
    target = Path(place.path).resolve()
    return any(target.is_relative_to(root) for root in targets)
