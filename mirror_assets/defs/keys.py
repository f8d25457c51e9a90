"""Names in Dagster: asset keys, partitions, groups and tags of a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import dagster as dg

PLATFORM_GROUP: Final = "platform"
METASTORE: Final = dg.AssetKey(["platform", "metastore"])
OBJECT_STORE: Final = dg.AssetKey(["platform", "object_store"])
#: marks the follower's runs; Dagster's run queue may limit them by it
ROLE_TAG: Final = "mirror/role"
TABLE_TAG: Final = "mirror/table"
KIND_TAG: Final = "mirror/asset"
FOLLOWER: Final = "follower"
#: states of runs that are under way, or will be
NOT_ENDED: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]
#: partition keys of published versions that are kept; unpublished ones always are
KEPT_KEYS: Final = 1_000


@dataclass(frozen=True, slots=True)
class TableKeys:
    """Where a table is found in Dagster."""

    table: str

    @property
    def commits(self) -> dg.AssetKey:
        return self._key("commits")

    @property
    def checkpoints(self) -> dg.AssetKey:
        return self._key("checkpoints")

    @property
    def delta_log(self) -> dg.AssetKey:
        return self._key("delta_log")

    @property
    def mirror_lag(self) -> dg.AssetKey:
        return self._key("mirror_lag")

    @property
    def versions(self) -> str:
        """The dynamic partitions of the commits."""
        return f"versions/{self.table}"

    @property
    def checkpoint_versions(self) -> str:
        """The dynamic partitions of the checkpoints: far fewer, hence their own."""
        return f"checkpoints/{self.table}"

    @property
    def group(self) -> str:
        """One per table: the graph's boxes show only the last part of a key."""
        return re.sub(r"\W", "_", self.table.replace(".", "__"))

    def tags(self, kind: str) -> dict[str, str]:
        return {TABLE_TAG: self.table, KIND_TAG: kind}

    def _key(self, last: str) -> dg.AssetKey:
        return dg.AssetKey([*self.table.split("."), last])


def table_of(key: dg.AssetKey) -> str:
    """The table that an asset belongs to."""
    return ".".join(key.path[:-1])
