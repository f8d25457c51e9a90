"""Healthy logs of every shape."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa

from mirror_assets.delta.checkpoint import checkpoint_schema
from mirror_assets.delta.last_checkpoint import CheckpointHint, encode_hint
from mirror_assets.delta.log_paths import (
    ClassicCheckpoint,
    CommitName,
    Compaction,
    MultiPartCheckpoint,
    SidecarName,
    V2Checkpoint,
    VersionChecksum,
)
from mirror_assets_tests.conformance.logs import (
    CHECKPOINT,
    HEAD,
    NOW_MS,
    TABLE_ID,
    UUID_TEXT,
    VECTOR_FILE,
    MemoryLog,
    Row,
    encoded,
    parquet,
)
from mirror_assets_tests.conformance.shapes import Shape

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def healthy(shape: Shape) -> MemoryLog:
    """A log of seven versions, with a checkpoint of the fifth where the shape wants one."""
    log = MemoryLog()
    commits = [_commit(shape, version) for version in range(HEAD + 1)]
    for version, lines in enumerate(commits):
        log.files[CommitName(version).name] = encoded(lines)
    if shape.vector == "u":
        log.data[VECTOR_FILE] = _vector_file()
    if shape.checksums:
        for version in range(HEAD + 1):
            log.files[VersionChecksum(version).name] = _checksum(commits, version, shape)
    if shape.compaction:
        lines = [row for row in _reconciled(commits[1:4]) if "commitInfo" not in row]
        log.files[Compaction(1, 3).name] = encoded(lines)
    if shape.checkpoint:
        _put_checkpoint(log, shape, commits)
    if shape.cleaned:
        for version in range(CHECKPOINT):
            del log.files[CommitName(version).name]
    return log


def an_add(shape: Shape, number: int, version: int, **members: Any) -> Row:
    key = "col-3" if shape.mapped else "day"
    prefix = f"day={number}/" if shape.partitioned else ""
    add: Row = {
        "path": f"{prefix}part-{number}.parquet",
        "partitionValues": {key: str(number)} if shape.partitioned else {},
        "size": 1000 + number,
        "modificationTime": NOW_MS + version,
        "dataChange": True,
        "stats": _stats(shape, number),
    }
    if shape.row_ids:
        members = {"baseRowId": number * 10, "defaultRowCommitVersion": version, **members}
    return {"add": add | members}


def a_remove(shape: Shape, number: int, version: int) -> Row:
    remove: Row = {
        "path": an_add(shape, number, 0)["add"]["path"],
        "deletionTimestamp": NOW_MS + version,
        "dataChange": True,
    }
    if shape.row_ids:
        remove |= {"baseRowId": number * 10, "defaultRowCommitVersion": number}
    return {"remove": remove}


def _commit(shape: Shape, version: int) -> list[Row]:
    info: Row = {"timestamp": NOW_MS + version * 1000, "operation": "WRITE"}
    if shape.has("inCommitTimestamp"):
        info = {"inCommitTimestamp": NOW_MS + version * 1000, **info}
    lines: list[Row] = [{"commitInfo": info}]
    match version:
        case 0:
            lines += [_protocol(shape), _metadata(shape)]
        case 3:
            lines += [{"txn": {"appId": "app", "version": 7, "lastUpdated": NOW_MS}}]
            lines += [an_add(shape, 3, 3)]
        case 4 if not shape.vector:
            lines += [a_remove(shape, 1, 4), an_add(shape, 4, 4)]
        case 4:
            vector = _vector(shape)
            stats = json.loads(_stats(shape, 1)) | {"tightBounds": False}
            members = {"stats": _dumped(stats), "deletionVector": vector}
            lines += [a_remove(shape, 1, 4), an_add(shape, 1, 4, **members)]
        case _:
            lines += [an_add(shape, version, version)]
    if shape.has("domainMetadata"):
        mark = {"domain": "delta.rowTracking", "configuration": _mark(version), "removed": False}
        own = {"domain": "app.settings", "configuration": f'{{"v":{version}}}', "removed": False}
        lines += [{"domainMetadata": mark if shape.row_ids else own}]
    if shape.cdc and version == 5:
        cdc = {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 5}
        lines += [{"cdc": cdc | {"dataChange": False}}]
    return lines


def _mark(version: int) -> str:
    return f'{{"rowIdHighWaterMark":{version * 10 + 9}}}'


def _protocol(shape: Shape) -> Row:
    if not shape.features and not shape.reader_features:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    readers = list(shape.reader_features)
    protocol: Row = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
    if readers:
        protocol["readerFeatures"] = readers
    return {"protocol": protocol | {"writerFeatures": [*shape.features, *readers]}}


def _metadata(shape: Shape) -> Row:
    columns = [*shape.columns, *([("day", "integer")] if shape.partitioned else [])]
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": _mapping(shape, number)}
        for number, (name, kind) in enumerate(columns, start=1)
    ]
    return {
        "metaData": {
            "id": TABLE_ID,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": _dumped({"type": "struct", "fields": fields}),
            "partitionColumns": ["day"] if shape.partitioned else [],
            "configuration": dict(shape.properties),
            "createdTime": NOW_MS,
        }
    }


def _mapping(shape: Shape, number: int) -> Row:
    if not shape.mapped:
        return {}
    return {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": f"col-{number}",
    }


def _stats(shape: Shape, number: int) -> str:
    key = "col-1" if shape.mapped else "id"
    stats = {
        "numRecords": 10,
        "minValues": {key: number},
        "maxValues": {key: number + 9},
        "nullCount": {key: 0},
    }
    return _dumped(stats)


def _dumped(value: Any) -> str:
    return orjson.dumps(value).decode()


def _bitmap(rows: list[int]) -> bytes:
    """One array container in one bucket."""
    head = struct.pack("<iqIII", 1_681_511_377, 1, 0, 12_346, 1)
    body = struct.pack("<HHI", 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *rows)
    return head + body


def _vector(shape: Shape) -> Row:
    bitmap = _bitmap([2, 5])
    inline = shape.vector == "i"
    padded = bitmap + b"\0" * (-len(bitmap) % 4)
    text = z85(padded) if inline else z85(UUID(UUID_TEXT).bytes)
    vector: Row = {"storageType": shape.vector, "pathOrInlineDv": text}
    if not inline:
        vector["offset"] = 1
    return vector | {"sizeInBytes": len(bitmap), "cardinality": 2}


def _vector_file() -> bytes:
    bitmap = _bitmap([2, 5])
    return b"\x01" + struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))


def z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        value = int.from_bytes(data[start : start + 4], "big")
        text += "".join(_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return text


def _reconciled(commits: list[list[Row]]) -> list[Row]:
    """The newest action of each key; removed files stay as tombstones."""
    newest: dict[tuple[Any, ...], Row] = {}
    for lines in commits:
        for line in sorted(lines, key=lambda line: "add" in line):
            ((kind, body),) = line.items()
            if kind in ("add", "remove"):
                vector = body.get("deletionVector") or {}
                newest["file", body["path"], vector.get("pathOrInlineDv")] = line
            elif kind != "cdc":
                newest[kind, body.get("appId") or body.get("domain")] = line
    return list(newest.values())


def _checksum(commits: list[list[Row]], version: int, shape: Shape) -> bytes:
    state = [row for row in _reconciled(commits[: version + 1]) if "commitInfo" not in row]
    adds = [row["add"] for row in state if "add" in row]
    vectors = [add["deletionVector"] for add in adds if "deletionVector" in add]
    document: Row = {
        "tableSizeBytes": sum(add["size"] for add in adds),
        "numFiles": len(adds),
        "numDeletedRecordsOpt": sum(vector["cardinality"] for vector in vectors),
        "numDeletionVectorsOpt": len(vectors),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [row["txn"] for row in state if "txn" in row],
        "domainMetadata": [row["domainMetadata"] for row in state if "domainMetadata" in row],
        "metadata": commits[0][2]["metaData"],
        "protocol": commits[0][1]["protocol"],
        "fileSizeHistogram": {
            "sortedBinBoundaries": [0, 500],
            "fileCounts": [0, len(adds)],
            "totalBytes": [0, sum(add["size"] for add in adds)],
        },
    }
    if shape.has("inCommitTimestamp"):
        document["inCommitTimestampOpt"] = NOW_MS + version * 1000
    return orjson.dumps(document) + b"\n"


def _put_checkpoint(log: MemoryLog, shape: Shape, commits: list[list[Row]]) -> None:
    rows = [r for r in _reconciled(commits[: CHECKPOINT + 1]) if "commitInfo" not in r]
    files = [r for r in rows if "add" in r or "remove" in r]
    others = [r for r in rows if r not in files]
    for row in files:
        row[next(iter(row))] = {**next(iter(row.values())), "dataChange": False}
    top, schema = [*others, *files], checkpoint_schema()
    version, sidecars = CHECKPOINT, 0
    if shape.checkpoint.startswith("v2"):
        schema = checkpoint_schema(v2=True)
        others.append({"checkpointMetadata": {"version": version}})
        top = [*others, *files]
        if shape.sidecars:
            only_files = pa.schema([schema.field("add"), schema.field("remove")])
            name = SidecarName(f"{UUID_TEXT}.parquet").name
            log.files[name] = parquet(files, only_files)
            size = len(log.files[name])
            sidecar = {"path": name.rpartition("/")[2], "sizeInBytes": size}
            top = [*others, {"sidecar": sidecar | {"modificationTime": NOW_MS}}]
            sidecars = 1
    names = _write_top(log, shape, top, schema)
    written = [n for n in log.files if ".checkpoint." in n or n.startswith("_sidecars/")]
    hint = CheckpointHint(
        version=version,
        size=len(others) + len(files) + sidecars,
        parts=2 if shape.checkpoint == "multi-part" else None,
        size_in_bytes=sum(len(log.files[n]) for n in written),
        num_of_add_files=sum("add" in row for row in files),
        v2_checkpoint=(
            {"path": names[0], "sizeInBytes": len(log.files[names[0]]), "modificationTime": NOW_MS}
            if shape.checkpoint.startswith("v2")
            else None
        ),
    )
    log.files["_last_checkpoint"] = encode_hint(hint)


def _write_top(log: MemoryLog, shape: Shape, top: list[Row], schema: pa.Schema) -> list[str]:
    version = CHECKPOINT
    match shape.checkpoint:
        case "classic":
            names = [ClassicCheckpoint(version).name]
        case "multi-part":
            names = [MultiPartCheckpoint(version, part, 2).name for part in (1, 2)]
        case "v2.json":
            names = [V2Checkpoint(version, UUID_TEXT, "json").name]
            log.files[names[0]] = encoded(top)
            return names
        case _:
            names = [V2Checkpoint(version, UUID_TEXT, "parquet").name]
    half = len(top) if len(names) == 1 else len(top) // 2
    for name, rows in zip(names, (top[:half], top[half:]), strict=False):
        log.files[name] = parquet(rows, schema)
    return names
