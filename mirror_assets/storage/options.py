"""How a store is reached: region, endpoint, encryption, deadlines, credentials.

Values come from the settings, which alone read the environment; a secret travels as `Secret`,
which no `repr`, log line or pickle shows. What would make obstore's client panic or send a
password in clear text is refused here, before the first request.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final, NoReturn
from urllib.parse import SplitResult, urlsplit

from mirror_assets.errors import StoreConfigError

#: the credentials that each kind of store takes, by obstore's names
CREDENTIALS: Final[dict[str, frozenset[str]]] = {
    "s3": frozenset({"access_key_id", "secret_access_key", "session_token"}),
    "gs": frozenset({"application_credentials", "service_account_key"}),
    "az": frozenset(
        {"account_name", "account_key", "sas_key", "client_id", "client_secret", "tenant_id"}
    ),
}


class Secret:
    """A text that shows itself to nobody but who asks for it by name."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself: hand it on, never keep or print it."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret('***')"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written to disk or to another process")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a store is reached; the defaults are AWS's own with the host's credentials.

    Without `credentials` the provider chain finds them: environment, web identity, container,
    instance. Raises StoreConfigError for values that cannot work.
    """

    region: str | None = None
    #: the address of an S3-compatible store; http only for this machine, unless `allow_http`
    endpoint: str | None = None
    #: bucket in the path, as most S3-compatible stores want it, and not in the host's name
    path_style: bool = True
    allow_http: bool = False
    #: deadline of one request, its body included; must be shorter than a lease
    request_timeout_s: float = 20
    connect_timeout_s: float = 5
    #: deadline of one request with a large body (checkpoints)
    large_timeout_s: float = 600
    #: encrypt with this key of KMS; without it the bucket's default holds
    kms_key_id: str | None = None
    #: certificates of private authorities, as PEM, beside the system's
    ca_certificates: str | None = None
    #: unsigned requests, for stores that let everyone in
    anonymous: bool = False
    #: by obstore's names, as `(("access_key_id", Secret(...)), ...)`
    credentials: tuple[tuple[str, Secret], ...] = ()
    #: local files survive a power cut: fsync of each file and its directory
    durable: bool = True

    def __post_init__(self) -> None:
        for name in ("request_timeout_s", "connect_timeout_s", "large_timeout_s"):
            if not getattr(self, name) > 0:
                raise StoreConfigError(f"{name} must be more than 0 seconds")
        for name, value in (("region", self.region), ("kms_key_id", self.kms_key_id)):
            _require_plain(name, value)
        for name, secret in self.credentials:
            if name not in set().union(*CREDENTIALS.values()):
                known = ", ".join(sorted(set().union(*CREDENTIALS.values())))
                raise StoreConfigError(f"no store takes a credential {name!r}", remedy=known)
            _require_plain(f"credential {name}", secret.reveal(), blanks=name.endswith("_key"))
        if self.endpoint is not None:
            _check_endpoint(self.endpoint, allow_http=self.allow_http)

    @property
    def uses_http(self) -> bool:
        """Whether the endpoint was given, and allowed, without TLS."""
        return self.endpoint is not None and urlsplit(self.endpoint).scheme == "http"


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    _require_plain("endpoint", endpoint)
    try:
        parts = urlsplit(endpoint)
        port_is_there = parts.port != 0
    except ValueError as exc:
        raise StoreConfigError(f"the endpoint {endpoint!r} is no URL: {exc}") from exc
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_there:
        raise StoreConfigError(f"the endpoint {endpoint!r} is no http or https URL with a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise StoreConfigError("the endpoint has credentials, a query or a fragment in it")
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts):
        raise StoreConfigError(
            f"the endpoint {endpoint!r} is without TLS, and not on this machine",
            remedy="use https, or set allow_http where the network is trusted",
        )


def _is_loopback(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _require_plain(name: str, value: str | None, *, blanks: bool = False) -> None:
    """These go into headers and addresses, where obstore's client panics at the unexpected."""
    if value is None:
        return
    if not value or not value.isascii() or not value.isprintable() or (" " in value and not blanks):
        raise StoreConfigError(
            f"the {name} is empty, or has characters that are no plain text (a line break?)",
            remedy="give it again without blanks and line breaks",
        )
