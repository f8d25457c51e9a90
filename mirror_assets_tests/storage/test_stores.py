"""Opening stores: allowed roots, options, secrets, certificates, and what errors become."""

from __future__ import annotations

import datetime as dt
import ipaddress
import pickle
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import obstore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from obstore.exceptions import GenericError

from mirror_assets.delta.locations import normalise_location
from mirror_assets.delta.log_paths import CommitName
from mirror_assets.errors import (
    ClockSkewError,
    LocationError,
    MirrorAssetsError,
    StoreAuthError,
    StoreConfigError,
    StoreThrottledError,
    StoreUnavailableError,
    TlsError,
)
from mirror_assets.storage.clients import clients_of
from mirror_assets.storage.options import Secret, StoreOptions
from mirror_assets.storage.stores import open_store
from mirror_assets.storage.translation import translate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "canary-4711"
PLACE = normalise_location("s3://bucket/certificate SlowDown AccessDenied")
KEYS = (("access_key_id", Secret("id")), ("secret_access_key", Secret(CANARY)))


@pytest.mark.parametrize(
    ("location", "roots"),
    [
        ("/data/lake/t", ["/data/lake"]),
        ("/data/lake", ["/data/lake"]),
        ("s3://bucket/a/t", ["s3://other", "s3://bucket"]),
        ("s3a://bucket/a/t", ["s3://bucket/a/"]),
        ("memory://x/t", []),
    ],
)
def test_a_place_below_a_root_is_opened(location: str, roots: list[str]) -> None:
    assert open_store(location, allowed_roots=roots).location == normalise_location(location)


@pytest.mark.parametrize(
    ("location", "roots"),
    [
        ("/data/lake2/t", ["/data/lake"]),
        ("/data", ["/data/lake"]),
        ("s3://bucket2/t", ["s3://bucket"]),
        ("s3://bucket/ab/t", ["s3://bucket/a"]),
        ("memory://x/t", ["/data"]),
        ("/data/lake/../secret", ["/data/lake"]),
        ("/data/lake/%2e%2e/secret", ["/data/lake"]),
    ],
)
def test_a_place_outside_of_the_roots_is_refused(location: str, roots: list[str]) -> None:
    with pytest.raises(LocationError):
        open_store(location, allowed_roots=roots)


def test_tables_of_one_bucket_share_their_connections() -> None:
    options = StoreOptions(endpoint="http://127.0.0.1:1", credentials=KEYS)
    again = StoreOptions(endpoint="http://127.0.0.1:1", credentials=KEYS)
    one = clients_of(normalise_location("s3://bucket/a"), options)

    assert clients_of(normalise_location("s3a://bucket/b/c"), again) is one
    assert clients_of(normalise_location("s3://other/a"), options) is not one
    assert clients_of(normalise_location("s3://bucket/a"), StoreOptions()) is not one


@pytest.mark.parametrize(
    "endpoint",
    ["not a url", "ftp://host", "https://", "http://host:99999", "https://u:p@host", "https://h?q=1",
     "http://store.example", "http://10.0.0.7:9000", "https://hö.st", "https://host\n", ""],
)  # fmt: skip
def test_an_endpoint_that_cannot_work_or_is_in_clear_text_is_refused(endpoint: str) -> None:
    with pytest.raises(StoreConfigError):
        StoreOptions(endpoint=endpoint)


@pytest.mark.parametrize(
    "endpoint",
    ["http://localhost:9000", "http://127.0.0.1", "http://[::1]:1", "https://s3.example"],
)
def test_an_endpoint_with_tls_or_on_this_machine_is_taken(endpoint: str) -> None:
    assert StoreOptions(endpoint=endpoint).endpoint == endpoint


def test_clear_text_can_be_asked_for() -> None:
    assert StoreOptions(endpoint="http://minio:9000", allow_http=True).uses_http


@pytest.mark.parametrize(
    "wrong",
    [
        {"request_timeout_s": 0},
        {"connect_timeout_s": -1},
        {"large_timeout_s": float("nan")},
        {"region": "eu west\n"},
        {"kms_key_id": "key\r\nx: y"},
        {"credentials": (("password", Secret(CANARY)),)},
        {"credentials": (("secret_access_key", Secret(f"{CANARY}\n")),)},
        {"credentials": (("secret_access_key", Secret("")),)},
    ],
)
def test_options_that_would_break_the_client_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(StoreConfigError) as raised:
        StoreOptions(**wrong)

    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    ("location", "credentials"),
    [
        ("gs://bucket/t", KEYS),
        ("az://container/t", KEYS),
        ("s3://bucket/t", (("account_key", Secret(CANARY)),)),
    ],
)
def test_credentials_of_another_kind_of_store_are_refused(
    location: str, credentials: tuple[tuple[str, Secret], ...]
) -> None:
    store = open_store(location, StoreOptions(credentials=credentials), allowed_roots=())

    with pytest.raises(StoreConfigError) as raised:
        store.put_if_absent(CommitName(0), b"x")
    assert CANARY not in str(raised.value)


def test_an_azure_store_without_an_account_is_a_wrong_setting() -> None:
    with pytest.raises(StoreConfigError, match="Account"):
        open_store("az://container/t", allowed_roots=()).read(CommitName(0))


@pytest.mark.parametrize("location", ["gs://bucket/t", "abfss://c@account.dfs.core.windows.net/t"])
def test_other_clouds_are_opened_with_their_names(location: str) -> None:
    key = "c2VjcmV0"
    credentials = (("account_key", Secret(key)),) if location.startswith("abfss") else ()
    store = open_store(
        location,
        StoreOptions(
            endpoint="http://127.0.0.1:1", anonymous=not credentials, credentials=credentials
        ),
        allowed_roots=(),
    )

    with pytest.raises(StoreUnavailableError, match="Connection refused"):
        store.put_if_absent(CommitName(0), b"x")


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret(CANARY)
    options = StoreOptions(credentials=KEYS)

    for shown in (f"{secret}", f"{secret!r}", f"{options}", f"{options!r}", str(vars(Secret))):
        assert CANARY not in shown
    for holder in (secret, options, clients_of(PLACE, options)):
        with pytest.raises(TypeError):
            pickle.dumps(holder)
    assert secret.reveal() == CANARY
    assert secret == Secret(CANARY)
    assert secret != CANARY


def test_a_store_that_nobody_listens_for_is_unavailable() -> None:
    options = StoreOptions(endpoint="http://127.0.0.1:1", credentials=KEYS)

    with pytest.raises(StoreUnavailableError, match="no connection") as raised:
        open_store("s3://bucket/t", options, allowed_roots=()).list()
    assert CANARY not in f"{raised.value} {raised.value.__cause__}"


def test_a_host_without_a_name_is_unavailable() -> None:
    options = StoreOptions(endpoint="https://store.invalid", credentials=KEYS)

    with pytest.raises(StoreUnavailableError):
        open_store("s3://bucket/t", options, allowed_roots=()).read(CommitName(0))


def test_a_panic_of_the_client_is_an_error_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(*_: object, **__: object) -> None:
        raise PanicException("request valid: InvalidUri")

    store = open_store("memory://panics/t", allowed_roots=())
    monkeypatch.setattr(obstore, "put", panic)
    with pytest.raises(StoreConfigError, match="InvalidUri"):
        store.put_if_absent(CommitName(0), b"x")


def test_an_interrupt_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    store = open_store("memory://interrupts/t", allowed_roots=())
    monkeypatch.setattr(obstore, "put", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.put_if_absent(CommitName(0), b"x")


ANSWER = "Generic S3 error: Error performing PUT https://h/certificate in 1ms - Server returned "
CASES: list[tuple[str, type[MirrorAssetsError]]] = [
    (ANSWER + "non-2xx status code: 500 Internal Server Error: ", StoreUnavailableError),
    (ANSWER + "non-2xx status code: 503: <Code>SlowDown</Code>", StoreThrottledError),
    (ANSWER + "non-2xx status code: 400: <Code>RequestTimeTooSkewed</Code>", ClockSkewError),
    (ANSWER + "non-2xx status code: 400: <Code>ExpiredToken</Code>", StoreAuthError),
    (ANSWER + "non-2xx status code: 400: <Code>RequestTimeout</Code>", StoreUnavailableError),
    (ANSWER + 'non-2xx status code: 403: {"error": {"code": "Forbidden"}}', StoreAuthError),
    (ANSWER + "non-2xx status code: 500: key SlowDown/InvalidCertificate", StoreUnavailableError),
    ("Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms",
     StoreAuthError),
    ("Generic Config error: failed to parse", StoreConfigError),
]  # fmt: skip


@pytest.mark.parametrize(("text", "error"), CASES)
def test_the_text_chooses_the_class_but_names_in_it_do_not(
    text: str, error: type[MirrorAssetsError]
) -> None:
    assert type(translate(GenericError(text), PLACE, "create a file")) is error


def test_a_signature_in_an_address_is_not_shown() -> None:
    error = translate(
        GenericError(f"GET https://a.blob/c?sv=1&sig={CANARY}&se=2 failed"), PLACE, "read a file"
    )

    assert CANARY not in str(error)


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, str]:
    """A private key with the certificate of 127.0.0.1, and the PEM of its authority."""
    now = dt.datetime.now(dt.UTC)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])

    def certificate(subject: x509.Name, public: ec.EllipticCurvePublicKey, *, ca: bool):
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(root_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(root_key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )

    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = tmp_path / "server.pem"
    file.write_bytes(private + certificate(x509.Name([]), key.public_key(), ca=False))
    return file, certificate(root_name, root_key.public_key(), ca=True).decode()


@pytest.fixture
def https_endpoint(authority: tuple[Path, str]) -> Iterator[str]:
    class Absent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority[0])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Absent)
    server.handle_error = lambda *_: None  # a client that does not trust us hangs up
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_certificate_of_an_unknown_authority_is_a_tls_error(https_endpoint: str) -> None:
    options = StoreOptions(endpoint=https_endpoint, credentials=KEYS)

    with pytest.raises(TlsError, match="certificate"):
        open_store("s3://bucket/t", options, allowed_roots=()).read(CommitName(0))


def test_a_private_authority_can_be_given(https_endpoint: str, authority: tuple[Path, str]) -> None:
    options = StoreOptions(endpoint=https_endpoint, credentials=KEYS, ca_certificates=authority[1])

    assert open_store("s3://bucket/t", options, allowed_roots=()).read(CommitName(0)) is None
