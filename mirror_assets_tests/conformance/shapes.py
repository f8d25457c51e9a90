"""What healthy logs are like: twenty shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a healthy log is like."""

    name: str
    features: tuple[str, ...] = ()
    reader_features: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    partitioned: bool = False
    mapped: bool = False
    checkpoint: str = ""
    sidecars: bool = False
    checksums: bool = False
    compaction: bool = False
    cleaned: bool = False
    vector: str = ""
    row_ids: bool = False
    cdc: bool = False
    columns: tuple[tuple[str, Any], ...] = (("id", "long"), ("name", "string"))

    def has(self, feature: str) -> bool:
        return feature in self.features + self.reader_features


ICT = (("delta.enableInCommitTimestamps", "true"),)
SHAPES = (
    Shape(name="plain"),
    Shape(name="partitioned", partitioned=True),
    Shape(name="classic", checkpoint="classic"),
    Shape(name="classic-partitioned", checkpoint="classic", partitioned=True),
    Shape(name="cleaned", checkpoint="classic", cleaned=True),
    Shape(name="multi-part", checkpoint="multi-part"),
    Shape(name="v2-parquet", checkpoint="v2.parquet", reader_features=("v2Checkpoint",)),
    Shape(name="v2-json", checkpoint="v2.json", reader_features=("v2Checkpoint",)),
    Shape(
        name="v2-sidecars",
        checkpoint="v2.parquet",
        sidecars=True,
        reader_features=("v2Checkpoint",),
    ),
    Shape(
        name="v2-json-sidecars",
        checkpoint="v2.json",
        sidecars=True,
        reader_features=("v2Checkpoint",),
        cleaned=True,
    ),
    Shape(name="checksums", checksums=True),
    Shape(name="checksums-ict", checksums=True, features=("inCommitTimestamp",), properties=ICT),
    Shape(name="ict", features=("inCommitTimestamp",), properties=ICT, checkpoint="classic"),
    Shape(
        name="vectors",
        reader_features=("deletionVectors",),
        properties=(("delta.enableDeletionVectors", "true"),),
        vector="u",
        checkpoint="classic",
    ),
    Shape(
        name="inline-vectors",
        reader_features=("deletionVectors",),
        properties=(("delta.enableDeletionVectors", "true"),),
        vector="i",
        checksums=True,
    ),
    Shape(
        name="mapped",
        reader_features=("columnMapping",),
        properties=(
            ("delta.columnMapping.mode", "name"),
            ("delta.columnMapping.maxColumnId", "3"),
        ),
        mapped=True,
        partitioned=True,
        checkpoint="classic",
    ),
    Shape(
        name="row-tracking",
        features=("domainMetadata", "rowTracking"),
        properties=(
            ("delta.enableRowTracking", "true"),
            ("delta.rowTracking.materializedRowIdColumnName", "_row-id"),
            ("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-version"),
        ),
        row_ids=True,
        checkpoint="classic",
    ),
    Shape(name="domains", features=("domainMetadata",), checkpoint="classic", checksums=True),
    Shape(name="compacted", compaction=True),
    Shape(
        name="changes",
        features=("changeDataFeed", "appendOnly"),
        properties=(("delta.enableChangeDataFeed", "true"),),
        cdc=True,
    ),
)
