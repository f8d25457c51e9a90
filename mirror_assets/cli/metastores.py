"""`init`: the metastore itself."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.session import Session

if TYPE_CHECKING:
    from mirror_assets.metastore.database import Metastore


def init(session: Session) -> ExitCode:
    """Create the metastore's schema, or migrate it to this release."""
    from mirror_assets.settings import redact

    metastore = session.new_metastore
    document = {"revision": metastore.upgrade(), "metastore": redact(metastore.url)}
    session.output.record(document, "the metastore is ready")
    return ExitCode.CLEAN


@contextmanager
def in_our_words(metastore: Metastore) -> Iterator[None]:
    """Translate the database's errors, for work that does not go through a transaction of ours."""
    from mirror_assets.metastore.engines import explain

    try:
        yield
    except metastore.dialect.errors as exc:
        known = explain(metastore.dialect, exc)
        if known is None:
            raise
        raise known from exc
