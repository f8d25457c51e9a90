"""The check at the door: a declared schema of `pandera.pyspark` that rows must keep."""

from __future__ import annotations

from typing import Any, Protocol

import orjson
from pyspark.sql import DataFrame

from mirror_assets.errors import RowsRefusedError


class RowSchema(Protocol):
    """A `DataFrameSchema` or a `DataFrameModel` of `pandera.pyspark`."""

    def validate(self, check_obj: DataFrame) -> Any:
        """Judge the rows; pandera collects what it finds in the result."""


def require_valid(frame: DataFrame, table: str, schema: RowSchema) -> None:
    """Raise RowsRefusedError with pandera's report if the rows break the schema."""
    judged = schema.validate(frame)
    found = judged.pandera.errors
    if not found:
        return
    report = orjson.loads(orjson.dumps(found, default=str))
    columns = {
        str(each.get("column"))
        for kinds in report.values()
        for listed in kinds.values()
        for each in listed
    }
    message = f"the rows break the schema at the door, in {', '.join(sorted(columns))}"
    error = RowsRefusedError(message, table=table)
    error.report = report
    raise error
