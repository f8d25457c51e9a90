"""Alerts: what changed for the worse or the better, told once.

They go to the log, and to a webhook where one is set: a POST of the alert as JSON, with the
sentence also under `text`, which chat systems show.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

import orjson
import structlog

_TIMEOUT_S: Final = 10

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One change that a person should know of."""

    kind: Literal["check", "freshness", "run"]
    subject: str
    #: such as `failed`, `warning`, `healthy`
    state: str
    message: str
    remedy: str = ""
    url: str = ""

    @property
    def text(self) -> str:
        """The whole of it in a line."""
        way_out = f" Remedy: {self.remedy}" if self.remedy else ""
        link = f" {self.url}" if self.url else ""
        return f"{self.subject}: {self.kind} {self.state}. {self.message}{way_out}{link}"


def notify(alerts: Sequence[Alert], webhook: str | None) -> None:
    """Send each alert; OSError where the webhook does not take it."""
    for alert in alerts:
        logger.warning("alert", **asdict(alert))
        if webhook is not None:
            _post(webhook, alert)


def _post(webhook: str, alert: Alert) -> None:
    body = orjson.dumps({**asdict(alert), "text": alert.text})
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(  # noqa: S310 - the operator's own address
        webhook, data=body, headers=headers, method="POST"
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the same
        answer.read()
