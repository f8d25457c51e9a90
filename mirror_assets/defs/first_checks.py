"""The sensor `first_checks`: what was never checked is, without waiting for the hour.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import dagster as dg
import orjson

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.defs.keys import METASTORE, NOT_ENDED, OBJECT_STORE, table_of
from mirror_assets.defs.schedules import CONFORMANCE, PLATFORM_CHECKS
from mirror_assets.errors import MirrorAssetsError
from mirror_assets.metastore.mirror_state import read_mirror_states

_PLATFORM: Final = {METASTORE, OBJECT_STORE}
_INTERVAL_S: Final = 15
#: what was asked for and has no result after this is asked for again
_AGAIN_S: Final = 1_800.0
#: tables of one run, which checks them one after the other
_TABLES: Final = 50
_SHOWN: Final = 10


def first_checks_sensor(jobs: Sequence[Any]) -> dg.SensorDefinition:
    """The sensor over the jobs that check."""

    @dg.sensor(
        name="first_checks",
        jobs=list(jobs),
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Asks for the checks of new tables, so that they need not wait for the hour.",
    )
    def first_checks(
        context: dg.SensorEvaluationContext, access: MirrorAccess
    ) -> dg.SensorResult | dg.SkipReason:
        unchecked = _unchecked(context)
        logs = sorted(unchecked - _PLATFORM)
        try:
            published = _published(access) if logs else set()
        except MirrorAssetsError as error:
            return dg.SkipReason(f"the metastore does not answer: {error}")
        asked = _Asked(context.cursor)
        due = [key for key in logs if table_of(key) in published and not asked.has(key)][:_TABLES]
        if due and _is_running(context.instance):
            due = []
        platform = [key for key in unchecked & _PLATFORM if not asked.has(key)]
        context.update_cursor(asked.with_these([*due, *platform]))
        requests = [dg.RunRequest(job_name=PLATFORM_CHECKS)] if platform else []
        if due:
            requests.append(dg.RunRequest(job_name=CONFORMANCE, asset_selection=due))
        if requests:
            return dg.SensorResult(run_requests=requests)
        return dg.SkipReason(_words(unchecked))

    return first_checks


def _unchecked(context: dg.SensorEvaluationContext) -> set[dg.AssetKey]:
    """Assets none of whose checks was ever run."""
    repository = context.repository_def
    checks = repository.asset_graph.asset_check_keys if repository is not None else set()
    found = context.instance.event_log_storage.get_latest_asset_check_execution_by_key(list(checks))
    return {key.asset_key for key in checks} - {key.asset_key for key in found}


def _is_running(instance: dg.DagsterInstance) -> bool:
    """One run at a time: many new tables take turns."""
    filters = dg.RunsFilter(job_name=CONFORMANCE, statuses=NOT_ENDED)
    return instance.get_runs_count(filters) > 0


def _words(unchecked: set[dg.AssetKey]) -> str:
    if not unchecked:
        return "everything was checked before"
    names = sorted(key.to_user_string() for key in unchecked)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    why = "nothing is published, or the run is under way"
    return f"not checked yet ({why}): {', '.join(names[:_SHOWN])}{more}"


def _published(access: MirrorAccess) -> set[str]:
    with access.metastore() as metastore:
        states = read_mirror_states(metastore, percentiles=False)
    return {state.table for state in states if state.mirrored_version >= 0}


class _Asked:
    """What runs were asked for, and when."""

    def __init__(self, cursor: str | None) -> None:
        found: dict[str, float] = orjson.loads(cursor) if cursor else {}
        self._now_s = time.time()
        self._at_s = {name: at for name, at in found.items() if self._now_s - at < _AGAIN_S}

    def has(self, key: dg.AssetKey) -> bool:
        return key.to_user_string() in self._at_s

    def with_these(self, keys: Sequence[dg.AssetKey]) -> str:
        """The next cursor."""
        now = {key.to_user_string(): self._now_s for key in keys}
        return orjson.dumps(self._at_s | now).decode()
