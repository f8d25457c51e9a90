"""What a table demands of its rows, put into the plan that writes them: one pass, not two.

NOT NULL, CHECK constraints and column invariants become expressions that fail the job. A table
whose columns a writer must compute, or whose files it must lay out differently, is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from mirror_assets.delta.actions import MetaData, TableProtocol
from mirror_assets.delta.features import effective_features, unsupported_writer_features
from mirror_assets.delta.schema import StructField, StructType, walk_fields, walk_types
from mirror_assets.errors import RowsRefusedError, UnsupportedTableError
from mirror_assets.pipeline.schemas import quoted

_CONSTRAINT: Final = "delta.constraints."
_INVARIANT: Final = "delta.invariants"
_COMPUTED: Final = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "__CHAR_VARCHAR_TYPE_STRING": "a column of a limited length",
}
_FOREIGN_LAYOUT: Final = ("icebergCompatV1", "icebergCompatV2", "icebergCompatV3")
#: Spark wraps what a task raises in texts of its own; between these stands ours
_BROKEN: Final = re.compile(r"mirror-assets\[(.*?)\]mirror-assets", re.DOTALL)


def require_writable(
    table: str, protocol: TableProtocol, metadata: MetaData, schema: StructType
) -> None:
    """Raise UnsupportedTableError where rows could be written that break the table's promises."""
    unsupported = unsupported_writer_features(protocol)
    features = effective_features(protocol)
    problem = None
    if unsupported:
        problem = f"the feature {min(unsupported)!r}"
    elif metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        problem = "column mapping"
    elif layout := features & frozenset(_FOREIGN_LAYOUT):
        problem = f"the feature {min(layout)!r}"
    elif any(kind.name == "variant" for _, kind in walk_types(schema)):
        problem = "a variant column"
    else:
        for path, member in walk_fields(schema):
            for key, what in _COMPUTED.items():
                if key in member.metadata:
                    problem = f"{what} ({'.'.join(path)})"
    if problem is not None:
        message = f"the table has {problem}, which this writer does not serve"
        remedy = "write its files with another engine, and commit their actions"
        raise UnsupportedTableError(message, table=table, remedy=remedy)


def enforced(frame: DataFrame, schema: StructType, configuration: dict[str, str]) -> DataFrame:
    """The DataFrame whose job fails at the first row that breaks a rule."""
    required = {m.name for m in schema.fields if not m.nullable}
    columns = [
        _required(F.col(quoted(name)), name).alias(name) if name in required else quoted(name)
        for name in frame.columns
    ]
    checked = frame.select(*columns) if required else frame
    for name, expression in _constraints(schema, configuration):
        broken = F.raise_error(F.lit(_marked(f"the rule {name} ({expression}) is broken")))
        holds = F.coalesce(F.expr(expression).cast("boolean"), F.expr("false"))
        checked = checked.where(F.when(holds, F.expr("true")).otherwise(broken))
    return checked


def as_refusal(exc: Exception, table: str) -> RowsRefusedError | None:
    """The broken rule, if that is why a job failed."""
    found = _BROKEN.search(str(exc))
    return None if found is None else RowsRefusedError(found[1], table=table)


def refusing(message: str) -> Column:
    """An expression that fails the job with a message of ours."""
    return F.raise_error(F.lit(_marked(message)))


def _required(column: Column, name: str) -> Column:
    broken = F.raise_error(F.lit(_marked(f"{name} is null, and may not be")))
    return F.when(column.isNotNull(), column).otherwise(broken)


def _constraints(schema: StructType, configuration: dict[str, str]) -> Iterator[tuple[str, str]]:
    for key, expression in configuration.items():
        if key.startswith(_CONSTRAINT):
            yield key.removeprefix(_CONSTRAINT), expression
    member: StructField
    for member in schema.fields:
        if (text := member.metadata.get(_INVARIANT)) is not None:
            yield f"of {member.name}", json.loads(text)["expression"]["expression"]


def _marked(message: str) -> str:
    return f"mirror-assets[{message}]mirror-assets"
