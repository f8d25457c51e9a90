"""Failures of stores become ours here, and nowhere else.

The type decides first. obstore has one type for most failures and puts the HTTP status, the
store's own code and the cause into the text; they choose between our classes, so they decide how
soon to try again and what to tell a person. They never decide whether something was stored.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from mirror_assets.delta.locations import Location
from mirror_assets.errors import (
    ClockSkewError,
    LocationError,
    MirrorAssetsError,
    StorageFullError,
    StoreAuthError,
    StoreConfigError,
    StoreThrottledError,
    StoreUnavailableError,
    TlsError,
    UnsafeStoreError,
)

_STATUS: Final = re.compile(r"status code: (\d{3})")
#: the store's own code, in the XML or JSON of its answer
_CODE: Final = re.compile(r"<Code>(\w+)</Code>|\"code\"\s*:\s*\"(\w+)\"")
_MESSAGE: Final = re.compile(r"<Message>([^<]+)</Message>")
#: how a request failed that got no answer, in the client's account of it
_TRANSPORT: Final = re.compile(r"HttpError \{\s*kind: (\w+)")
_CAUSE: Final = re.compile(r"(?:message|error): \"([^\"]+)\"|InvalidCertificate\(\s*(\w+)")
_LONGEST: Final = 300
_RETRY_AFTER: Final = re.compile(r"retry-?after\W{1,4}(\d{1,5})", re.IGNORECASE)
_SIGNATURE: Final = re.compile(r"\b(sig|X-Amz-Signature|X-Amz-Security-Token)=[^&\s\"]+")
_NOISE: Final = re.compile(r"^Generic \w+ error: ")
#: addresses and quoted texts hold the names of tables, which may say anything
_NAMES: Final = re.compile(r"https?://\S+|\"[^\"]*\"")
_TLS: Final = re.compile(r"\b(InvalidCertificate|AlertReceived|InvalidMessage|PeerIncompatible)\b")
_SETTINGS: Final = re.compile(r"^Generic Config error|HTTP error: builder error")
#: where a host asks for credentials when it was given none
_METADATA_SERVICE: Final = re.compile(r"Error performing [A-Z]+ http://169\.254\.")

_BY_CODE: Final[dict[str, type[MirrorAssetsError]]] = {
    "RequestTimeTooSkewed": ClockSkewError,
    "RequestExpired": ClockSkewError,
    "SlowDown": StoreThrottledError,
    "TooManyRequests": StoreThrottledError,
    "RequestLimitExceeded": StoreThrottledError,
    "Throttling": StoreThrottledError,
    "ServerBusy": StoreThrottledError,
    "ExpiredToken": StoreAuthError,
    "InvalidToken": StoreAuthError,
    "NoSuchBucket": StoreConfigError,
    "InvalidBucketName": StoreConfigError,
    "ContainerNotFound": StoreConfigError,
    "PermanentRedirect": StoreConfigError,
    "AuthorizationHeaderMalformed": StoreConfigError,
    "IllegalLocationConstraintException": StoreConfigError,
    "EntityTooLarge": StoreConfigError,
    "NotImplemented": UnsafeStoreError,
    "InsufficientStorage": StorageFullError,
    "XMinioStorageFull": StorageFullError,
    "QuotaExceeded": StorageFullError,
}
_BY_STATUS: Final[dict[int, type[MirrorAssetsError]]] = {
    301: StoreConfigError,
    401: StoreAuthError,
    403: StoreAuthError,
    404: StoreConfigError,
    405: StoreConfigError,
    413: StoreConfigError,
    429: StoreThrottledError,
    501: UnsafeStoreError,
    507: StorageFullError,
}
#: types that say all there is to say
_BY_TYPE: Final[tuple[tuple[type[BaseException], type[MirrorAssetsError]], ...]] = (
    (NotSupportedError, UnsafeStoreError),
    # The caller looked and found nothing: two requests met, and neither won.
    (AlreadyExistsError, StoreUnavailableError),
    (PreconditionError, StoreUnavailableError),
    (UnknownConfigurationKeyError, StoreConfigError),
    (InvalidPathError, StoreConfigError),
    (ValueError, StoreConfigError),
    (FileNotFoundError, StoreConfigError),
)
_BY_ERRNO: Final[dict[int, type[MirrorAssetsError]]] = {
    errno.ENOSPC: StorageFullError,
    errno.EDQUOT: StorageFullError,
    errno.EFBIG: StorageFullError,
    errno.EACCES: StoreAuthError,
    errno.EPERM: StoreAuthError,
    errno.EROFS: StoreConfigError,
    errno.ENOTDIR: StoreConfigError,
    errno.EISDIR: StoreConfigError,
    errno.ENAMETOOLONG: StoreConfigError,
    errno.ELOOP: LocationError,
}


@contextmanager
def translated(location: Location, attempt: str) -> Iterator[None]:
    """Raise our error for whatever the store raises inside; `attempt` is what was being done."""
    try:
        yield
    except MirrorAssetsError:
        raise
    except BaseException as exc:
        if not is_of_store(exc):
            raise
        raise translate(exc, location, attempt) from _cause(exc)


def translate(exc: BaseException, location: Location, attempt: str) -> MirrorAssetsError:
    """Our error for one that a store raised."""
    if isinstance(exc, MirrorAssetsError):
        return exc
    text = _SIGNATURE.sub(r"\1=***", str(exc))
    kind = _kind(exc, text)
    message = f"cannot {attempt} at {location}: {_reason(text)}"
    if kind is StoreThrottledError:
        wait = _RETRY_AFTER.search(text)
        return StoreThrottledError(message, retry_after_s=float(wait[1]) if wait else None)
    return kind(message)


def is_of_store(exc: BaseException) -> bool:
    """Whether a store or its client raised it, and not Python or a person (Ctrl-C)."""
    return isinstance(exc, BaseError | OSError | ValueError) or _is_panic(exc)


def _kind(exc: BaseException, text: str) -> type[MirrorAssetsError]:
    if isinstance(exc, OSError) and exc.errno is not None:
        return _BY_ERRNO.get(exc.errno, StoreUnavailableError)
    if isinstance(exc, PermissionDeniedError | UnauthenticatedError):
        return ClockSkewError if _by_code(text) is ClockSkewError else StoreAuthError
    for kind, ours in _BY_TYPE:
        if isinstance(exc, kind):
            return ours
    if isinstance(exc, BaseError):
        return _by_code(text) or _by_status(text) or _by_cause(text)
    return StoreConfigError  # a panic, which the client has for settings it did not foresee


def _reason(text: str) -> str:
    """What the store or the connection said, without the client's account of it."""
    status, code, said = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
    if status is not None:
        words = [f"HTTP {status[1]}", (code[1] or code[2]) if code else ""]
        answer = " ".join(word for word in words if word)
        return f"{answer}: {said[1].strip()[:_LONGEST]}" if said else answer
    kind, cause = _TRANSPORT.search(text), _CAUSE.search(text)
    if kind is not None:
        how = {"Timeout": "no answer in time", "Connect": "no connection"}.get(kind[1], "cut off")
        why = (cause[1] or f"certificate: {cause[2]}") if cause else ""
        return f"{how} ({why})" if why else how
    return _NOISE.sub("", text.partition("\n")[0])[:_LONGEST]


def _by_code(text: str) -> type[MirrorAssetsError] | None:
    code = _CODE.search(text)
    return _BY_CODE.get(code[1] or code[2]) if code else None


def _by_status(text: str) -> type[MirrorAssetsError] | None:
    if _METADATA_SERVICE.search(text):
        return StoreAuthError
    status = _STATUS.search(text)
    return _BY_STATUS.get(int(status[1]), StoreUnavailableError) if status else None


def _by_cause(text: str) -> type[MirrorAssetsError]:
    """Of a request without an answer."""
    nameless = _NAMES.sub("", text)
    if _SETTINGS.search(nameless):
        return StoreConfigError
    return TlsError if _TLS.search(nameless) else StoreUnavailableError


def _is_panic(exc: BaseException) -> bool:
    """Rust's panics come as a BaseException whose type cannot be imported."""
    return type(exc).__name__ == "PanicException"


def _cause(exc: BaseException) -> BaseException | None:
    """The original, unless its text has a signature that would be shown with it."""
    return None if _SIGNATURE.search(str(exc)) else exc
