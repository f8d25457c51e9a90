"""Checkpoints by Spark: many tables side by side, or the sidecars of one large table.

A classic checkpoint is one file and so one task. The sidecars of a V2 checkpoint are a task each;
the top-level file and the pointer are written by the driver, when the facts add up to SQL's counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from mirror_assets.delta.actions import Sidecar
from mirror_assets.delta.checkpoint_content import CheckpointContent
from mirror_assets.delta.features import effective_features
from mirror_assets.delta.sidecar_plan import Part
from mirror_assets.metastore.arrow_reader import ArrowReader
from mirror_assets.metastore.checkpoint_queue import BuiltCheckpoint
from mirror_assets.metastore.checkpoint_source import CheckpointSource
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.mirror.breakers import Breakers
from mirror_assets.mirror.bulk.runner import Facts, Runner
from mirror_assets.mirror.maintenance import Checkpoints
from mirror_assets.mirror.service import Mirror
from mirror_assets.mirror.v2_checkpoint import Placed, write_part
from mirror_assets.pipeline.access import Access


def build_checkpoint(
    workers: Runner, access: Access, name: str, version: int | None = None
) -> BuiltCheckpoint:
    """Build the checkpoint of one table; the newest published version by default.

    Raises what building one in process raises, and SparkJobError if Spark gave up: then nothing
    points at what was written.
    """
    metastore = access.metastore()
    if "v2Checkpoint" not in effective_features(LogReader(metastore).summary(name).protocol):
        return build_checkpoints(workers, access, [(name, version)])[0]
    checkpoints = Checkpoints(
        metastore,
        access.log_store,
        Breakers(metastore),
        owner=mirror_of(access).owner,
        place_parts=partial(_place_parts, workers, access),
    )
    return checkpoints.build(name, version)


def build_checkpoints(
    workers: Runner, access: Access, wanted: Sequence[tuple[str, int | None]]
) -> list[BuiltCheckpoint]:
    """Build the checkpoints of many tables, each in one task."""
    facts = workers.run(wanted, partial(_build, access))
    return [BuiltCheckpoint(**fact) for fact in facts]


def mirror_of(access: Access) -> Mirror:
    """The mirror of this process, as the access says."""
    return Mirror(
        access.metastore(),
        options=access.store_options(),
        allowed_roots=access.allowed_roots,
        single_writer=access.single_writer,
        checksums=access.checksums,
    )


def _build(access: Access, wanted: tuple[str, int | None]) -> Facts:
    """Runs in a task."""
    return asdict(mirror_of(access).checkpoints.build(*wanted))


def _place_parts(
    workers: Runner, access: Access, source: CheckpointSource, parts: Sequence[Part]
) -> list[Placed | None]:
    task = partial(_place, access, source.table.name, source.version, source.now_ms)
    return [_placed(fact) for fact in workers.run(parts, task)]


def _place(access: Access, name: str, version: int, now_ms: int, part: Part) -> Facts:
    """Runs in a task: one sidecar, under a name that no other attempt has."""
    metastore = access.metastore()
    source = CheckpointSource.open(metastore, name, version, now_ms=now_ms)
    store = access.log_store(source.table.location)
    with (
        TemporaryDirectory(prefix="mirror-assets-sidecar-") as directory,
        ArrowReader(metastore) as reader,
    ):
        placed = write_part(store, source, part, Path(directory), reader)
    if placed is None:
        return {}
    return {"action": msgspec.to_builtins(placed.action), "content": asdict(placed.content)}


def _placed(fact: dict[str, Any]) -> Placed | None:
    if not fact:
        return None
    action = msgspec.convert(fact["action"], Sidecar)
    return Placed(action=action, content=CheckpointContent(**fact["content"]), is_kept=False)
