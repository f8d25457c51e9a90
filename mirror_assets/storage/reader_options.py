"""The options of a store in the words of deltalake, which opens tables by its own client."""

from __future__ import annotations

from typing import Final

from mirror_assets.storage.options import StoreOptions

_CREDENTIALS: Final = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "session_token": "AWS_SESSION_TOKEN",
}


def reader_options(options: StoreOptions, location: str) -> dict[str, str]:
    """`storage_options` for a location; none for local files."""
    if not location.startswith(("s3://", "s3a://")):
        return {}
    found = {
        _CREDENTIALS[name]: secret.reveal()
        for name, secret in options.credentials
        if name in _CREDENTIALS
    }
    if options.region is not None:
        found["AWS_REGION"] = options.region
    if options.endpoint is not None:
        found["AWS_ENDPOINT_URL"] = options.endpoint
        found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false" if options.path_style else "true"
    if options.uses_http:
        found["AWS_ALLOW_HTTP"] = "true"
    if options.anonymous:
        found["AWS_SKIP_SIGNATURE"] = "true"
    return found
