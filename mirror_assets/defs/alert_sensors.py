"""The sensors `alerts` and `run_failure`: what changed is told once.

Dagster reads the annotations of what it runs as objects, so they are not postponed here.
"""

from typing import Final

import dagster as dg
import orjson
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from pydantic import SecretStr

from mirror_assets.defs.access import MirrorAccess
from mirror_assets.mirror.alerts import Alert, notify
from mirror_assets.settings import Settings

_HEALTHY: Final = ("passed", "pass")
#: what is said of it, by the state
_WORDS: Final = {
    "pass": "the lag is inside the objective again",
    "warn": "no heartbeat inside the lag objective: the mirror is late, or nobody mirrors",
    "fail": "still no heartbeat inside the lag objective",
    "passed": "the check passes again",
    "failed": "the check does not pass; its findings tell why",
    "execution_failed": "the check could not be run",
}


def alerts_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor, which looks as often as the settings say."""

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=settings.alert_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells once when a check or the freshness of a table changes.",
    )
    def alerts(context: dg.SensorEvaluationContext, access: MirrorAccess) -> dg.SkipReason:
        """Poll: open-source Dagster has no alert for either."""
        before: dict[str, str] = orjson.loads(context.cursor) if context.cursor else {}
        now = {**_check_states(context), **_freshness_states(context)}
        changed = changes(before, now, access.settings.dagster_url)
        told, problem = _tell(changed, access.settings.alert_webhook)
        untold = changed.keys() - told.keys()
        kept = {name: state for name, state in now.items() if name not in untold}
        context.update_cursor(orjson.dumps({**before, **kept}).decode())
        ailing = sorted(name for name, state in now.items() if state not in _HEALTHY)
        words = "; ".join([alert.text for alert in told.values()] + problem)
        return dg.SkipReason(
            words or f"nothing changed; not healthy: {', '.join(ailing) or 'none'}"
        )

    return alerts


@dg.run_failure_sensor(
    name="run_failure",
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Tells of every run that failed.",
)
def run_failure(context: dg.RunFailureSensorContext, access: MirrorAccess) -> None:
    """One alert per run."""
    run, settings = context.dagster_run, access.settings
    alert = Alert(
        kind="run",
        subject=run.job_name,
        state="failed",
        message=(context.failure_event.message or "without a reason")[:1_000],
        url=f"{settings.dagster_url}/runs/{run.run_id}",
    )
    webhook = settings.alert_webhook
    notify([alert], webhook.get_secret_value() if webhook else None)


def changes(before: dict[str, str], now: dict[str, str], url: str) -> dict[str, Alert]:
    """What is worth a word: a state that is not as before, but for a healthy first one."""
    found = {}
    for name, state in now.items():
        was = before.get(name)
        if state == was or (was is None and state in _HEALTHY):
            continue
        subject, _, check = name.partition(":")
        found[name] = Alert(
            kind="check" if check else "freshness",
            subject=f"{subject} {check}".strip(),
            state=state,
            message=_WORDS.get(state, state),
            url=f"{url}/assets/{subject}",
        )
    return found


def _tell(
    alerts: dict[str, Alert], webhook: SecretStr | None
) -> tuple[dict[str, Alert], list[str]]:
    """Send them; those that were taken, and why the others were not, which are sent again."""
    told: dict[str, Alert] = {}
    for name, alert in alerts.items():
        try:
            notify([alert], webhook.get_secret_value() if webhook else None)
        except OSError as error:
            return told, [f"the webhook did not take the alert, it is sent again: {error}"]
        told[name] = alert
    return told, []


def _check_states(context: dg.SensorEvaluationContext) -> dict[str, str]:
    repository = context.repository_def
    keys = list(repository.asset_graph.asset_check_keys) if repository is not None else []
    storage = context.instance.event_log_storage
    found = storage.get_latest_asset_check_execution_by_key(keys)
    running = AssetCheckExecutionRecordStatus.PLANNED
    states = {}
    for key, record in found.items():
        if record.status is running:
            continue
        evaluation = record.event.asset_check_evaluation if record.event else None
        state = "execution_failed" if evaluation is None else _state_of(passed=evaluation.passed)
        states[f"{key.asset_key.to_user_string()}:{key.name}"] = state
    return states


def _state_of(*, passed: bool) -> str:
    return "passed" if passed else "failed"


def _freshness_states(context: dg.SensorEvaluationContext) -> dict[str, str]:
    repository = context.repository_def
    graph = repository.asset_graph if repository is not None else None
    keys = [
        key
        for key in (graph.get_all_asset_keys() if graph is not None else ())
        if key.path[-1] == "mirror_lag"
    ]
    records = context.instance.get_freshness_state_records(keys)
    states = {
        key.to_user_string(): record.freshness_state.value.lower()
        for key, record in records.items()
    }
    return {key: state for key, state in states.items() if state in ("pass", "warn", "fail")}
