"""Actions with defaults, for tests of the protocol's rules."""

from __future__ import annotations

import json
from typing import Any

from mirror_assets.delta.actions import (
    AddFile,
    DeletionVector,
    DomainMetadata,
    Format,
    MetaData,
    RemoveFile,
    TableProtocol,
)

NOW_MS = 1_760_000_000_000


def a_field(name: str, kind: Any = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def a_schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields or (a_field("id"),))})


def a_metadata(*fields: dict[str, Any], **members: Any) -> MetaData:
    defaults: dict[str, Any] = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": Format(),
        "schema_string": a_schema(*fields),
        "partition_columns": [],
        "configuration": {},
    }
    return MetaData(**defaults | members)


def a_protocol(*features: str, reader: list[str] | None = None) -> TableProtocol:
    """Writer features on (1,7), or on (3,7) with those that readers need."""
    return TableProtocol(
        min_reader_version=1 if reader is None else 3,
        min_writer_version=7,
        reader_features=reader,
        writer_features=[*features, *(reader or ())],
    )


def an_add(path: str = "part-0.parquet", **members: Any) -> AddFile:
    defaults: dict[str, Any] = {
        "path": path,
        "partition_values": {},
        "size": 1000,
        "modification_time": NOW_MS,
        "data_change": True,
    }
    return AddFile(**defaults | members)


def a_remove(path: str = "part-0.parquet", **members: Any) -> RemoveFile:
    defaults: dict[str, Any] = {
        "path": path,
        "deletion_timestamp": NOW_MS,
        "data_change": True,
    }
    return RemoveFile(**defaults | members)


def a_vector(**members: Any) -> DeletionVector:
    defaults: dict[str, Any] = {
        "storage_type": "u",
        "path_or_inline_dv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "size_in_bytes": 36,
        "cardinality": 2,
    }
    return DeletionVector(**defaults | members)


def a_domain(domain: str = "app.settings", **members: Any) -> DomainMetadata:
    defaults: dict[str, Any] = {"domain": domain, "configuration": "{}", "removed": False}
    return DomainMetadata(**defaults | members)


def stats_of(records: int, **members: Any) -> str:
    return json.dumps({"numRecords": records, **members})
