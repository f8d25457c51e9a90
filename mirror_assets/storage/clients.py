"""obstore's clients, one set per bucket and options, shared by all tables in it.

A client has its own connections and its own credentials from the provider chain, so thousands of
tables of one bucket must not have one each. Keys are whole paths in the bucket.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from mirror_assets.delta.locations import Location
from mirror_assets.errors import StoreConfigError
from mirror_assets.storage.log_source import memory_store
from mirror_assets.storage.options import CREDENTIALS, StoreOptions

if TYPE_CHECKING:
    from obstore.store import RetryConfig

#: bodies above this get the long deadline
LARGE_BYTES: Final = 8 * 1024 * 1024
_ONCE: Final[RetryConfig] = {"max_retries": 0}
_KINDS: Final = {"s3": "s3", "gs": "gs", "az": "az", "abfss": "az"}


class Clients:
    """The clients of one bucket."""

    def __init__(self, bucket: Location, options: StoreOptions) -> None:
        self._bucket = bucket
        self._options = options

    @cached_property
    def once(self) -> ObjectStore:
        """Sends each request once: whoever gets no clean answer must look, not repeat."""
        return self._client(self._options.request_timeout_s, _ONCE)

    @cached_property
    def large(self) -> ObjectStore:
        """The same with time for large bodies."""
        return self._client(self._options.large_timeout_s, _ONCE)

    @cached_property
    def reads(self) -> ObjectStore:
        """Retries, for what takes many harmless requests: listings and streams."""
        timeout = self._options.request_timeout_s
        retries: RetryConfig = {"max_retries": 2, "retry_timeout": timedelta(seconds=timeout)}
        return self._client(timeout, retries)

    def fitting(self, size: int) -> ObjectStore:
        """The client for a body of this size."""
        return self.large if size > LARGE_BYTES else self.once

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store's client holds credentials and is not pickled; open it anew")

    def _client(self, timeout_s: float, retries: RetryConfig) -> ObjectStore:
        if self._bucket.scheme == "memory":
            return memory_store(self._bucket.host)
        config = _config(_KINDS[self._bucket.scheme], self._options)
        try:
            return from_url(
                self._bucket.uri,
                config=config,
                client_options=_client_options(self._options, timeout_s),
                retry_config=retries,
            )
        except (BaseError, ValueError) as exc:
            # No request was made yet: whatever it is, it is about the settings.
            reason = str(exc).partition("\n")[0]
            raise StoreConfigError(f"cannot open {self._bucket}: {reason}") from exc


def clients_of(place: Location, options: StoreOptions) -> Clients:
    """The clients of the bucket or container in which the place lies."""
    root = f"{place.scheme}://{place.host}"
    return _clients(Location(uri=f"{root}/", key=root), options)


@lru_cache(maxsize=64)
def _clients(bucket: Location, options: StoreOptions) -> Clients:
    return Clients(bucket, options)


def _config(kind: str, options: StoreOptions) -> Any:
    """The settings of the store, by obstore's names."""
    secrets = {name: secret.reveal() for name, secret in options.credentials}
    if foreign := secrets.keys() - CREDENTIALS[kind]:
        raise StoreConfigError(f"a store of {kind}:// takes no {', '.join(sorted(foreign))}")
    config: dict[str, Any] = {**secrets, "skip_signature": options.anonymous}
    if options.endpoint is not None:
        config["base_url" if kind == "gs" else "endpoint"] = options.endpoint
    if kind != "s3":
        return config
    config |= {
        "conditional_put": "etag",  # the environment could turn it off
        "virtual_hosted_style_request": not options.path_style,
        "disable_bulk_delete": True,  # not every S3-compatible store has it
    }
    if options.region is not None:
        config["region"] = options.region
    if options.kms_key_id is not None:
        config |= {"server_side_encryption": "aws:kms", "sse_kms_key_id": options.kms_key_id}
    return config


def _client_options(options: StoreOptions, timeout_s: float) -> Any:
    client: dict[str, Any] = {
        "allow_http": options.uses_http,
        "timeout": timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=options.connect_timeout_s),
        "pool_idle_timeout": timedelta(seconds=30),  # below what servers and balancers allow
    }
    if options.ca_certificates is not None:
        client["root_certificate"] = options.ca_certificates
    return client
