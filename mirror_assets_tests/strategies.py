"""Generated actions: what real logs hold, and what only the protocol allows.

Texts mix plain names with everything JSON can say: controls, quotes, astral characters. NUL is
left out of what a column holds as text, because PostgreSQL cannot keep it and the writer refuses
it; inside of maps and free-form members it is welcome.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from mirror_assets.delta.actions import (
    ACTION_NAMES,
    INT32_MAX,
    INT64_MAX,
    Action,
    AddFile,
    CdcFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    MetaData,
    RemoveFile,
    Sidecar,
    TableProtocol,
    Txn,
    UnknownAction,
)
from mirror_assets_tests.delta.samples import a_schema

#: everything UTF-8 can say
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "\x00", "\x1f\x7f\t\n\r\b\f", '"\\/', "<b>&'", "é\u2028\ufeff😀", "null", "1.0"]
)
column_texts = texts.map(lambda text: text.replace("\x00", "\x01"))
int32s = st.integers(0, INT32_MAX) | st.just(-INT32_MAX - 1)
int64s = st.integers(-INT64_MAX - 1, INT64_MAX) | st.sampled_from([0, INT64_MAX])
counts = st.integers(0, INT64_MAX // 4)
string_maps = st.dictionaries(texts, st.none() | texts, max_size=4)
configurations = st.dictionaries(texts, texts, max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | int64s | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
statistics = st.none() | st.builds(
    lambda records, rest: json.dumps({"numRecords": records, "rest": rest}, ensure_ascii=False),
    counts,
    json_values,
)


def _optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def extras(kind: type[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Members beyond the protocol's, none of which has a name of the protocol."""
    known = {"extra", *kind.__struct_encode_fields__}
    names = texts.filter(lambda name: name not in known)
    return st.just({}) | st.dictionaries(names, json_values, max_size=3)


deletion_vectors = st.builds(
    DeletionVector,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=column_texts,
    offset=st.sampled_from([None, 0, 1, INT32_MAX]),
    size_in_bytes=int32s,
    cardinality=int64s,
)
adds = st.builds(
    AddFile,
    path=column_texts,
    partition_values=string_maps,
    size=int64s,
    modification_time=int64s,
    data_change=st.booleans(),
    stats=statistics | column_texts,
    tags=_optional(string_maps),
    deletion_vector=_optional(deletion_vectors),
    base_row_id=_optional(int64s),
    default_row_commit_version=_optional(int64s),
    clustering_provider=_optional(column_texts),
    extra=extras(AddFile),
)
removes = st.builds(
    RemoveFile,
    path=column_texts,
    deletion_timestamp=_optional(int64s),
    data_change=st.booleans(),
    extended_file_metadata=_optional(st.booleans()),
    partition_values=_optional(string_maps),
    size=_optional(int64s),
    tags=_optional(string_maps),
    deletion_vector=_optional(deletion_vectors),
    base_row_id=_optional(int64s),
    default_row_commit_version=_optional(int64s),
    stats=_optional(column_texts),
    extra=extras(RemoveFile),
)
metadatas = st.builds(
    MetaData,
    id=column_texts,
    name=_optional(column_texts),
    description=_optional(column_texts),
    format=st.builds(Format, provider=column_texts, options=configurations),
    schema_string=column_texts | st.just(a_schema()),
    partition_columns=st.lists(texts, max_size=3),
    configuration=configurations,
    created_time=_optional(int64s),
    extra=extras(MetaData),
)
protocols = st.builds(
    TableProtocol,
    min_reader_version=int32s,
    min_writer_version=int32s,
    reader_features=_optional(st.lists(texts, max_size=3)),
    writer_features=_optional(st.lists(texts, max_size=3)),
    extra=extras(TableProtocol),
)
txns = st.builds(
    Txn, app_id=column_texts, version=int64s, last_updated=_optional(int64s), extra=extras(Txn)
)
domains = st.builds(
    DomainMetadata,
    domain=column_texts,
    configuration=column_texts,
    removed=st.booleans(),
    extra=extras(DomainMetadata),
)
cdc_files = st.builds(
    CdcFile,
    path=column_texts,
    partition_values=string_maps,
    size=int64s,
    tags=_optional(string_maps),
    data_change=st.booleans(),
    extra=extras(CdcFile),
)
checkpoint_metadatas = st.builds(
    CheckpointMetadata,
    version=int64s,
    tags=_optional(string_maps),
    extra=extras(CheckpointMetadata),
)
sidecars = st.builds(
    Sidecar,
    path=texts,
    size_in_bytes=int64s,
    modification_time=int64s,
    tags=_optional(string_maps),
    extra=extras(Sidecar),
)
#: free-form but for the null members of Delta's own names, which are not written
commit_infos = st.dictionaries(
    st.sampled_from(["operation", "operationParameters", "tags", "txnId", "timestamp"]) | texts,
    json_values.filter(lambda value: value is not None),
    max_size=5,
).map(CommitInfo)
unknown_actions = st.builds(
    lambda name, value: UnknownAction(fields={name: value}),
    texts.filter(lambda name: name not in ACTION_NAMES.values()),
    json_values.filter(lambda value: value is not None),
)
#: what a row of the metastore holds
row_actions: st.SearchStrategy[Action] = st.one_of(
    adds, removes, metadatas, protocols, txns, domains, cdc_files, unknown_actions
)
actions: st.SearchStrategy[Action] = st.one_of(
    row_actions, commit_infos, checkpoint_metadatas, sidecars
)
