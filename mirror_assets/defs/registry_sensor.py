"""The sensor `registry`: new tables appear in Dagster, dropped ones go, by themselves.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

import time
import urllib.request
from typing import Final

import dagster as dg
import orjson

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.keys import table_of
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.log_reader import LogReader

_INTERVAL_S: Final = 15
#: the webserver is asked again for the same tables after this
_AGAIN_S: Final = 300.0
#: a reload starts a new code server
_PATIENCE_S: Final = 60
_RELOAD: Final = """
mutation Reload($name: String!) {
  reloadRepositoryLocation(repositoryLocationName: $name) {
    __typename
    ... on PythonError { message }
    ... on UnauthorizedError { message }
    ... on ReloadNotSupported { message }
    ... on RepositoryLocationNotFound { message }
  }
}
"""


def registry_sensor(broken: dict[str, str], problem: str | None) -> dg.SensorDefinition:
    """The sensor, which also tells of tables that could not be built."""

    @dg.sensor(
        name="registry",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reloads this code location when SQL has other tables than are shown here.",
    )
    def registry(context: dg.SensorEvaluationContext, access: MirrorAccess) -> dg.SkipReason:
        try:
            with access.metastore() as metastore:
                registered = {table.name for table in LogReader(metastore).tables()}
        except MirrorAssetsError as error:
            return dg.SkipReason(f"the metastore does not answer: {error}")
        defined = defined_tables(context)
        changes = sorted(registered.symmetric_difference(defined) - broken.keys())
        words = f"{len(defined)} tables are shown" + _told(broken)
        if not changes and problem is None:
            return dg.SkipReason(words)
        if not _is_due(context, changes):
            return dg.SkipReason(f"{words}; a reload for {changes} was asked for already")
        context.update_cursor(orjson.dumps([changes, time.time()]).decode())
        origin = context.code_location_origin
        name = "mirror_assets.definitions" if origin is None else origin.location_name
        answer = reload_location(access.settings.dagster_url, name)
        return dg.SkipReason(f"{words}; reloaded for {changes}: {answer}")

    return registry


def defined_tables(context: dg.SensorEvaluationContext) -> set[str]:
    """The tables that have assets."""
    repository = context.repository_def
    keys = repository.asset_graph.get_all_asset_keys() if repository is not None else set()
    return {table_of(key) for key in keys if key.path[-1] == "commits"}


def reload_location(url: str, name: str) -> str:
    """Ask the webserver to load the definitions anew; what it says, or why it cannot be asked."""
    body = orjson.dumps({"query": _RELOAD, "variables": {"name": name}})
    request = urllib.request.Request(  # noqa: S310 - the operator's own webserver
        f"{url.rstrip('/')}/graphql", data=body, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as reply:  # noqa: S310 - the same
            answer = orjson.loads(reply.read())
    except (OSError, ValueError) as error:
        return f"no answer from {url} ({error}); set dagster_url to the webserver's address"
    done = (answer.get("data") or {}).get("reloadRepositoryLocation") or {}
    if done.get("__typename") == "WorkspaceLocationEntry":
        return "done"
    return str(done.get("message") or answer.get("errors") or done)


def _is_due(context: dg.SensorEvaluationContext, changes: list[str]) -> bool:
    asked, at_s = orjson.loads(context.cursor) if context.cursor else ([], 0.0)
    return bool(asked != changes or time.time() - at_s > _AGAIN_S)


def _told(broken: dict[str, str]) -> str:
    return "".join(f"; {table} cannot be shown: {why}" for table, why in broken.items())
