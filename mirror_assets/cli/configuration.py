"""`config show`: the settings in force, and where each came from."""

# ruff: noqa: PLC0415 - heavy modules are imported when a command runs; session.py says why

from __future__ import annotations

from dataclasses import asdict

from mirror_assets.cli.exits import ExitCode
from mirror_assets.cli.session import Session


def show(session: Session) -> ExitCode:
    """Show the effective settings with their source; passwords are hidden."""
    from mirror_assets.settings import unknown_variables

    settings = [asdict(setting) for setting in session.loaded.effective()]
    session.output.rows(
        {"settings": settings},
        "settings",
        ("key", "value", "source", "origin"),
        title="settings",
        empty="",
    )
    for name in unknown_variables():
        session.output.note(f"the environment variable {name} is no setting, and is ignored")
    return ExitCode.CLEAN
