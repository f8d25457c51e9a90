"""What the Dagster platform can be told; part of `Settings`, which reads them."""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode

_Seconds = Annotated[float, Field(gt=0)]


class PlatformSettings(BaseSettings):
    """How tables are driven, watched and shown in Dagster."""

    drive: Literal["follower", "runs"] = Field(
        default="follower",
        description="who publishes: a long-lived follower run, or a run for each batch of versions",
    )
    follower_minutes: _Seconds = Field(
        default=55.0, description="minutes after which a follower run hands over to its successor"
    )
    lag_objective: _Seconds = Field(
        default=10.0, description="seconds of lag up to which a table counts as fresh"
    )
    lag_objectives: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="other objectives of single tables, as TABLE=SECONDS"
    )
    freshness_warn: Annotated[float, Field(ge=60)] = Field(
        default=120.0, description="seconds outside of the objective after which freshness warns"
    )
    freshness_fail: Annotated[float, Field(ge=60)] = Field(
        default=300.0, description="seconds outside of the objective after which freshness fails"
    )
    spark_submit: str | None = Field(
        default=None,
        min_length=1,
        description="command that submits Dagster's Spark jobs, as `spark-submit --executor-memory "
        "4g`; none given: they run in the run's own process",
    )
    table_owners: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("team:mirror",),
        description="owners shown on the assets: addresses, or teams as team:NAME",
    )
    dagster_url: str = Field(
        default="http://127.0.0.1:3000",
        description="address of the Dagster webserver, which is asked to show new tables",
    )
    apply_repairs: bool = Field(
        default=False,
        description="scheduled reconcile and cleanup runs act; else they only plan",
    )
    alert_webhook: SecretStr | None = Field(
        default=None,
        description="address to which alerts are posted as JSON; none given: none is",
    )
    alert_seconds: Annotated[int, Field(ge=5)] = Field(
        default=30, description="seconds between two looks for changes to alert of"
    )

    @field_validator("lag_objectives", "table_owners", mode="before")
    @classmethod
    def _split_list(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return orjson.loads(value)
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("lag_objectives")
    @classmethod
    def _check_objectives(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pair in value:
            table, _, seconds = pair.partition("=")
            if not table or not _is_positive(seconds):
                message = "as TABLE=SECONDS, such as sales.orders=60"
                raise ValueError(message)
        return value

    def objective_of(self, table: str) -> float:
        """Seconds of lag that the table may have."""
        objectives = dict(pair.split("=", 1) for pair in self.lag_objectives)
        return float(objectives.get(table, self.lag_objective))


def _is_positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
