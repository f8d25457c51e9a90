"""A streaming query writes to a table, each micro-batch exactly once.

    query = frame.writeStream.foreachBatch(table_sink("shop.events", access=..., app_id="events"))

Spark may run a batch again after a crash: between the commit in SQL and Spark's own checkpoint it
cannot know. The commit carries `txn(app_id, batch id)`, and SQL refuses the second one. So `app_id`
belongs to one query with one checkpoint directory: a query that begins anew needs a new one, or
its rows would be taken for those that are there.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from mirror_assets.errors import CommitConflictError, TableNotFoundError, WriteRefusedError
from mirror_assets.metastore.log_reader import LogReader
from mirror_assets.metastore.outcomes import Conflict
from mirror_assets.pipeline.access import Access
from mirror_assets.pipeline.table_writer import Application, NewTable, write_table

_ATTEMPTS = 5


def table_sink(
    table: str,
    *,
    access: Access,
    app_id: str,
    merge_schema: bool = False,
    create: NewTable | None = None,
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch` that appends a batch to the table.

    It raises CommitConflictError, and so ends the query, if the table's metadata kept changing
    under it; the batch runs again when the query is started again. Raises WriteRefusedError if
    the table has later batches of this `app_id`: Spark repeats none but the last, so the query
    has lost its checkpoint, or never had one.
    """

    def write(frame: DataFrame, batch_id: int) -> None:
        application = Application(app_id=app_id, version=batch_id)
        _require_own_checkpoint(table, access, application)
        for attempt in range(1, _ATTEMPTS + 1):
            written = write_table(
                frame,
                table,
                access=access,
                merge_schema=merge_schema,
                create=create,
                application=application,
            )
            lost = written.outcome
            if not isinstance(lost, Conflict):
                return
            if attempt == _ATTEMPTS:
                message = f"the batch {batch_id} lost {attempt} times: {lost.message}"
                raise CommitConflictError(message, table=table, version=lost.winning_version)

    return write


def _require_own_checkpoint(table: str, access: Access, batch: Application) -> None:
    try:
        last = LogReader(access.metastore()).txns(table).get(batch.app_id)
    except TableNotFoundError:
        return
    if last is not None and last.version > batch.version:
        message = (
            f"the query is at batch {batch.version}, and the table has batch {last.version} of "
            f"{batch.app_id!r}: its rows would be taken for those that are there"
        )
        remedy = (
            "start it with the checkpointLocation that it had, or with a new app_id if it is "
            "another query or begins anew"
        )
        raise WriteRefusedError(message, table=table, remedy=remedy)
