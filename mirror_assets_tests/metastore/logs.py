"""Delta logs on disk, as a test needs them: commits, checkpoints, and what is wrong with them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mirror_assets.delta.actions import ACTION_NAMES, CommitInfo
from mirror_assets.delta.checkpoint import checkpoint_schema
from mirror_assets.delta.commit_file import decode, encode
from mirror_assets.delta.table_state import TableState, replay
from mirror_assets.storage.log_source import open_log
from mirror_assets_tests.delta.samples import NOW_MS, a_metadata, a_protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirror_assets.delta.actions import Action
    from mirror_assets.storage.log_source import LogSource

START = (a_protocol("domainMetadata", reader=["deletionVectors"]), a_metadata())


def a_log(root: Path, *commits: Sequence[Action] | bytes, first: int = 0) -> LogSource:
    """Write the commits as versions from `first` on; bytes are written as they are."""
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    for version, commit in enumerate(commits, start=first):
        data = commit if isinstance(commit, bytes) else encode(commit)
        (log / f"{version:020}.json").write_bytes(data)
    return open_log(str(root))


def info(version: int, **members: Any) -> CommitInfo:
    return CommitInfo({"timestamp": NOW_MS + version, "operation": "WRITE", **members})


def checkpoint_bytes(actions: Sequence[Action], *, v2: bool = False) -> bytes:
    """The Parquet file of a checkpoint, or a sidecar, with these actions."""
    rows = [{ACTION_NAMES[type(action)]: _plain(action)} for action in actions]
    schema = checkpoint_schema(v2=v2)
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), buffer)
    return buffer.getvalue()


def add_checkpoint(root: Path, version: int, actions: Sequence[Action] | bytes) -> Path:
    """Write a classic checkpoint; bytes are written as they are."""
    data = actions if isinstance(actions, bytes) else checkpoint_bytes(actions)
    path = root / "_delta_log" / f"{version:020}.checkpoint.parquet"
    path.write_bytes(data)
    return path


def state_of(root: Path, version: int) -> TableState:
    """The state that the commits from 0 on give."""
    log = root / "_delta_log"
    return replay(
        (v, decode((log / f"{v:020}.json").read_bytes()).actions) for v in range(version + 1)
    )


def actions_of(state: TableState) -> list[Action]:
    """What a checkpoint of the state holds."""
    assert state.protocol
    assert state.metadata
    return [
        state.protocol,
        state.metadata,
        *state.txns.values(),
        *state.domains.values(),
        *state.files.values(),
        *state.tombstones.values(),
    ]


def _plain(action: Action) -> Any:
    members = {k: v for k, v in msgspec.to_builtins(action).items() if k != "(extra)"}
    if isinstance(members.get("format"), dict):
        members["format"] = {"provider": "parquet", "options": []}
    return {
        key: list(value.items())
        if isinstance(value, dict) and key in ("partitionValues", "tags", "configuration")
        else value
        for key, value in members.items()
    }
