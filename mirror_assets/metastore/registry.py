"""Registering tables: a name, a place, and version 0."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import uuid4

import stamina
from sqlalchemy import Connection, func, or_, select
from sqlalchemy.exc import IntegrityError

from mirror_assets.delta.actions import Action, CommitInfo, Format, MetaData
from mirror_assets.delta.features import protocol_for_new_table, without_protocol_keys
from mirror_assets.delta.locations import Location, normalise_location
from mirror_assets.delta.schema import parse_schema
from mirror_assets.errors import ConfigurationError, TableExistsError
from mirror_assets.metastore.commit_plan import ICT_PROPERTY
from mirror_assets.metastore.committing import Committing
from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.dialect import RetryableError
from mirror_assets.metastore.doubt import WORTH_A_TRY, try_again
from mirror_assets.metastore.earlier import find_committed
from mirror_assets.metastore.heads import InForce, TableState, lock_heads
from mirror_assets.metastore.outcomes import CommitRequest, Committed, new_commit_id
from mirror_assets.metastore.tables import dl_mirror_tables, dl_tables

_NAME: Final = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62}){0,2}"
)


def create_table(
    metastore: Metastore,
    name: str,
    location: str,
    schema_string: str,
    *,
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    description: str | None = None,
    engine_info: str = "mirror-assets",
) -> Committed:
    """Register a new table and commit its version 0.

    In-commit timestamps are on unless the configuration says otherwise, because a commit file's
    modification time tells when it was published, not when it was committed. Raises
    TableExistsError, LocationError or RuleViolationError, and then nothing is registered. A COMMIT
    in doubt is looked up, as the writer does; OutcomeUnknownError if the database stays away.
    """
    properties = {ICT_PROPERTY: "true", **(configuration or {})}
    place = normalise_location(location)
    require_name(name)

    def version_zero(now_ms: int) -> list[Action]:
        return _version_zero(schema_string, partition_columns, properties, description, now_ms)

    commit_id = new_commit_id()

    def attempt(*, in_doubt: bool = False) -> Committed:
        del in_doubt  # the look for the commit id costs only where the name is taken
        return _create(
            metastore, name, place, version_zero, commit_id=commit_id, engine_info=engine_info
        )

    try:
        return attempt()
    except WORTH_A_TRY as error:
        return try_again(attempt, error, table=name, commit_id=commit_id)


#: on PostgreSQL, others may take the same table id meanwhile: the next one is free
@stamina.retry(on=RetryableError, attempts=50, timeout=30.0, wait_initial=0.01, wait_max=0.5)
def _create(
    metastore: Metastore,
    name: str,
    place: Location,
    version_zero: Callable[[int], list[Action]],
    *,
    commit_id: str,
    engine_info: str,
) -> Committed:
    with metastore.write() as connection:
        try:
            register(metastore, connection, name, place, state=TableState.ACTIVE)
        except TableExistsError:
            if (earlier := find_committed(connection, name, commit_id)) is None:
                raise
            return earlier
        heads, now_ms = lock_heads(metastore.statements, connection, [name])
        committing = Committing(
            statements=metastore.statements,
            connection=connection,
            in_force=InForce(),
            now_ms=now_ms,
            commit_id=commit_id,
            group_id=None,
            engine_info=engine_info,
            is_all=True,
        )
        request = CommitRequest(table=name, actions=version_zero(now_ms))
        return committing.commit(heads[name], request)


def register(
    metastore: Metastore,
    connection: Connection,
    name: str,
    place: Location,
    *,
    state: str,
    data_location: str | None = None,
) -> int:
    """Insert the table's row, without any version; return its id."""
    require_name(name)
    refuse_taken(connection, name, place)
    newest: int = connection.execute(
        select(func.coalesce(func.max(dl_tables.c.table_id), 0))
    ).scalar_one()
    now_ms = connection.execute(select(metastore.dialect.now_ms())).scalar_one()
    row = {
        "table_id": newest + 1,
        "name": name,
        "location": place.uri,
        "location_key": place.key,
        "data_location": data_location,
        "state": state,
        "created_at_ms": int(now_ms),
        **dict.fromkeys(
            ("first_version", "floor_version", "head_timestamp_ms", "protocol_version"), 0
        ),
        **dict.fromkeys(("metadata_version", "num_files", "size_bytes", "num_removes"), 0),
        "head_version": -1,
        "mirrored_version": -1,
    }
    mirror = {
        "table_id": newest + 1,
        "state": "OK",
        "checkpoint_version": -1,
        **dict.fromkeys(("fence", "lease_until_ms", "failures", "next_attempt_at_ms"), 0),
    }
    try:
        connection.execute(dl_tables.insert(), row)
        connection.execute(dl_mirror_tables.insert(), mirror)
    except IntegrityError as exc:
        message = "another table was registered at the same moment"
        raise RetryableError(message, table=name) from exc
    return newest + 1


def refuse_taken(connection: Connection, name: str, place: Location) -> None:
    """Raise TableExistsError where a registered table has the name or the place."""
    columns = (dl_tables.c[key] for key in ("name", "location", "location_key", "state"))
    query = select(*columns).where(
        or_(dl_tables.c.name == name, dl_tables.c.location_key == place.key)
    )
    for taken in connection.execute(query):
        if taken.name == name:
            message = f"the name is taken by the table at {taken.location}"
        else:
            message = f"the location {place.uri} is taken by the table {taken.name!r}"
        remedy = None
        if taken.state == TableState.RELEASED and taken.location_key == place.key:
            remedy = (
                f"it was released: `mirror-assets adopt {taken.name}` takes it back; to begin "
                f"anew, `mirror-assets drop {taken.name} --apply` first"
            )
        raise TableExistsError(message, table=name, remedy=remedy)


def require_name(name: str) -> None:
    """A table's name is one to three words, joined by dots; ConfigurationError otherwise."""
    if not _NAME.fullmatch(name):
        message = f"{name!r} cannot be a table's name"
        remedy = "use letters, digits, `_` and `-`, as in `schema.table`"
        raise ConfigurationError(message, remedy=remedy)


def _version_zero(
    schema_string: str,
    partition_columns: Sequence[str],
    properties: Mapping[str, str],
    description: str | None,
    now_ms: int,
) -> list[Action]:
    schema = parse_schema(schema_string)
    metadata = MetaData(
        id=str(uuid4()),
        description=description,
        format=Format(),
        schema_string=schema_string,
        partition_columns=list(partition_columns),
        configuration=without_protocol_keys(properties),
        created_time=now_ms,
    )
    return [
        CommitInfo({"operation": "CREATE TABLE"}),
        protocol_for_new_table(schema, properties),
        metadata,
    ]
