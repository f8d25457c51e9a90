"""`release`: everything is published, then the log belongs to file-based writers again.

    no commits any more, fence down -> publish -> checkpoint -> released

Interrupted or failed, it goes on where it stopped when it is called again.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirror_assets.delta.features import effective_features
from mirror_assets.errors import TableStateError, UnsupportedTableError
from mirror_assets.metastore.handover import begin_release, end_release
from mirror_assets.metastore.heads import TableState
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.mirror_state import read_mirror_states
from mirror_assets.mirror.service import Mirror


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What file-based writers find."""

    table: str
    state: str
    location: str
    version: int
    #: of the newest checkpoint; None if none could be built
    checkpoint_version: int | None
    #: what they must know to write
    features: tuple[str, ...]


def release(mirror: Mirror, name: str, *, engine_info: str, patience_s: float) -> Released:
    """Give a table back.

    Raises TableNotFoundError, and TableStateError while something cannot be published: the table
    takes no commits then, and releasing it again goes on.
    """
    metastore, reader = mirror.metastore, LogReader(mirror.metastore)
    begin_release(metastore, name, engine_info=engine_info)
    if reader.table(name).state == TableState.RELEASING:
        mirror.settle([name], patience_s=patience_s)
        _require_published(mirror, name)
        _build_checkpoint(mirror, name)
    table = end_release(metastore, name)
    (state,) = read_mirror_states(metastore, [name], percentiles=False)
    found = state.checkpoint_version
    return Released(
        table=name,
        state=table.state,
        location=table.location,
        version=table.head_version,
        checkpoint_version=found if found >= 0 else None,
        features=tuple(sorted(effective_features(reader.summary(name).protocol))),
    )


def _require_published(mirror: Mirror, name: str) -> None:
    (state,) = read_mirror_states(mirror.metastore, [name], percentiles=False)
    if not state.lag_versions:
        return
    message = f"{state.lag_versions} versions are not published yet ({state.state})"
    if state.last_error:
        message = f"{message}: {state.last_error}"
    remedy = f"`mirror-assets release {name}` again goes on; until then it takes no commits"
    raise TableStateError(message, table=name, version=state.mirrored_version, remedy=remedy)


def _build_checkpoint(mirror: Mirror, name: str) -> None:
    """So that readers and writers begin near the head; some tables' are not ours to write."""
    try:
        mirror.checkpoints.build(name)
    except UnsupportedTableError:
        return
