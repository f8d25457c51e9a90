"""The door of this room: a location becomes the store of its log."""

from __future__ import annotations

from collections.abc import Sequence

from mirror_assets.delta.locations import Location, normalise_location, within
from mirror_assets.errors import LocationError
from mirror_assets.storage.clients import clients_of
from mirror_assets.storage.local_store import LocalLogStore
from mirror_assets.storage.log_store import LogStore
from mirror_assets.storage.object_store import ObjectLogStore
from mirror_assets.storage.options import StoreOptions


def open_store(
    location: str | Location,
    options: StoreOptions | None = None,
    *,
    allowed_roots: Sequence[str | Location],
) -> LogStore:
    """The store of the table's log at the location; no request is made yet.

    `allowed_roots` are the places below which tables may live; none given: anywhere. Raises
    LocationError for a place outside of them, StoreConfigError for options that cannot work.
    """
    place = _place(location)
    root = allowed_root(place, allowed_roots)
    options = options or StoreOptions()
    if place.scheme == "file":
        return LocalLogStore(place, root=root, durable=options.durable)
    return ObjectLogStore(place, clients_of(place, options))


def allowed_root(place: Location, allowed_roots: Sequence[str | Location]) -> Location | None:
    """The innermost allowed root above the place; None if all places are allowed."""
    roots = [_place(root) for root in allowed_roots]
    if not roots:
        return None
    around = [root for root in roots if within(root.key, place.key)]
    if not around:
        listed = ", ".join(str(root) for root in roots)
        message = f"{place} is outside of the allowed roots ({listed})"
        raise LocationError(message, remedy="move the table, or add its place to allowed_roots")
    return max(around, key=lambda root: len(root.key))


def _place(location: str | Location) -> Location:
    return normalise_location(location) if isinstance(location, str) else location
