"""Validation of a commit to a small table, for tests of its rules."""

from __future__ import annotations

import pytest

from mirror_assets.delta.actions import TableProtocol
from mirror_assets.delta.validation import validate_commit
from mirror_assets.errors import RuleViolationError
from mirror_assets_tests.delta.samples import a_field, a_metadata, a_protocol

PLAIN = a_protocol()
DOMAINS = a_protocol("domainMetadata", "clustering")
VECTORS = a_protocol(reader=["deletionVectors"])
VECTORS_ON = {"delta.enableDeletionVectors": "true"}
MAPPING = TableProtocol(
    min_reader_version=2, min_writer_version=7, writer_features=["columnMapping"]
)


def validate(*actions, protocol=PLAIN, metadata=None, version=3):
    """Validate on a table of one column, unless told otherwise."""
    metadata = a_metadata() if metadata is None else metadata
    return validate_commit(actions, version=version, protocol=protocol, metadata=metadata)


def rule_broken(*actions, **table):
    with pytest.raises(RuleViolationError) as caught:
        validate(*actions, **table)
    assert caught.value.rule is not None
    assert caught.value.version == 3
    assert caught.value.remedy
    return caught.value.rule


def rules_noted(*actions, **table):
    return {finding.rule for finding in validate(*actions, **table)}


def partitioned(kind):
    return a_metadata(a_field("id"), a_field("p", kind), partition_columns=["p"])


def mapped(name, number, physical=None, kind="long"):
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return a_field(name, kind, **{key: value for key, value in mapping.items() if value})


def with_mapping(*fields, largest="9", **members):
    configuration = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": largest,
    }
    return a_metadata(*fields, configuration=configuration, **members)
