"""A metastore with tables on disk, seen through the definitions of Dagster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from mirror_assets.defs.build import build_definitions
from mirror_assets.defs.keys import TableKeys
from mirror_assets.storage.options import StoreOptions
from mirror_assets_tests.builders import commit
from mirror_assets_tests.delta.samples import an_add
from mirror_assets_tests.mirror.mirroring import World

if TYPE_CHECKING:
    from pathlib import Path

    from mirror_assets.metastore.database import Metastore

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


@dataclass
class Platform:
    """What a test of `defs/` starts from."""

    metastore: Metastore
    root: Path
    instance: dg.DagsterInstance

    @property
    def world(self) -> World:
        return World(self.metastore, str(self.root), StoreOptions(durable=False))

    def table(self, name: str = "sales.orders", *, commits: int = 0) -> TableKeys:
        self.world.table(name, commits=commits)
        return TableKeys(name)

    def commit(self, keys: TableKeys, number: int) -> None:
        commit(self.metastore, keys.table, an_add(f"g-{number}.parquet"))

    def definitions(self) -> dg.Definitions:
        return build_definitions()

    def materialize(self, *keys: dg.AssetKey, **options: Any) -> dg.ExecuteInProcessResult:
        job = self.definitions().resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance, asset_selection=list(keys), raise_on_error=False, **options
        )

    def backfill(self, keys: TableKeys, first: int, last: int) -> dg.ExecuteInProcessResult:
        """One run of a range, as a single-run backfill makes it."""
        tags = {RANGE_START: str(first), RANGE_END: str(last)}
        return self.materialize(keys.commits, tags=tags)

    def add_keys(self, keys: TableKeys, head: int) -> None:
        self.instance.add_dynamic_partitions(keys.versions, [str(v) for v in range(head + 1)])

    def green(self, key: dg.AssetKey) -> list[int]:
        return sorted(map(int, self.instance.get_materialized_partitions(key)))

    def metadata(self, key: dg.AssetKey, partition: int) -> dict[str, Any]:
        records = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=key, asset_partitions=[str(partition)]), limit=1
        ).records
        return {n: v.value for n, v in records[0].asset_materialization.metadata.items()}

    def files(self, keys: TableKeys) -> list[int]:
        return sorted(self.world.store(keys.table).list().commits)
