"""What a process needs to start: the one place that reads the environment.

A setting comes from its default, from `mirror.toml` (in the working directory, or where
`MIRROR_CONFIG` points), from the environment as `MIRROR_<KEY>`, or from an option of the command
line; the later wins. `load_settings` remembers which one won, so that `config show` and every
error can name it.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from mirror_assets import __version__
from mirror_assets.delta.conflicts import IsolationLevel
from mirror_assets.delta.locations import Location, normalise_location, within
from mirror_assets.errors import ConfigurationError, LocationError
from mirror_assets.platform_settings import PlatformSettings
from mirror_assets.storage.options import CREDENTIALS, Secret, StoreOptions

CONFIG_FILE: Final = "mirror.toml"
ENV_PREFIX: Final = "MIRROR_"
_CONFIG_VARIABLE: Final = f"{ENV_PREFIX}CONFIG"
#: from the first colon behind the user to the last `@`: too much rather than too little
_URL_PASSWORD: Final = re.compile(r"(://[^:/@\s]*):\S*@")
_QUERY_PASSWORD: Final = re.compile(r"([?&][^=&\s]*pass[^=&\s]*=)[^&\s]*", re.IGNORECASE)

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Limit = Annotated[int, Field(ge=1)]


class Source(StrEnum):
    """Where a setting's value comes from; the later wins."""

    DEFAULT = "default"
    FILE = "mirror.toml"
    ENVIRONMENT = "environment"
    OPTION = "option"


class Settings(PlatformSettings):
    """The settings of this release; `load_settings` makes them."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    metastore_url: SecretStr = Field(
        default=SecretStr("sqlite:///mirror.db"),
        description="SQLAlchemy URL of the metastore: sqlite:///, duckdb:/// or postgresql://",
    )
    allowed_roots: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="places below which tables may live; none given: anywhere",
    )
    engine_info: str = Field(
        default=f"mirror-assets/{__version__}",
        min_length=1,
        description="engineInfo in the commitInfo of every commit",
    )
    isolation: IsolationLevel | None = Field(
        default=None,
        description="isolation of commits; none given: what the table's properties say",
    )
    backpressure_warn: Limit | None = Field(
        default=None, description="unmirrored versions at which a commit warns"
    )
    backpressure_wait: Limit | None = Field(
        default=None, description="unmirrored versions at which a commit waits"
    )
    backpressure_refuse: Limit | None = Field(
        default=None, description="unmirrored versions at which a commit is refused"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description="what is logged to stderr"
    )
    store_endpoint: str | None = Field(
        default=None, description="address of an S3-compatible store; none given: AWS's own"
    )
    store_region: str | None = Field(default=None, description="region of the store")
    store_path_style: bool = Field(
        default=True, description="bucket in the path of a request, not in its host's name"
    )
    store_allow_http: bool = Field(
        default=False, description="allow an endpoint without TLS that is not on this machine"
    )
    store_credentials: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="names of environment variables with credentials, as NAME=VARIABLE; none "
        "given: the provider chain",
    )
    store_anonymous: bool = Field(default=False, description="send unsigned requests")
    store_kms_key_id: str | None = Field(
        default=None, description="encrypt with this key of KMS; none given: the bucket's default"
    )
    store_ca_file: Path | None = Field(
        default=None, description="PEM file with certificates of private authorities"
    )
    store_request_timeout: Annotated[float, Field(gt=0)] = Field(
        default=20.0, description="seconds that one request to the store may take"
    )
    store_durable: bool = Field(default=True, description="local files survive a power cut (fsync)")
    single_writer: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="stores that ignore conditional writes, as s3://bucket, for which the operator "
        "accepts that only SQL's lease keeps writers apart",
    )
    mirror_checksums: Literal["checkpoints", "all"] = Field(
        default="checkpoints",
        description="versions that get a checksum (.crc): those with a checkpoint, or all",
    )
    mirror_tables: Limit = Field(default=500, description="tables that a mirror claims together")
    mirror_versions: Limit = Field(
        default=100, description="versions of a table that a mirror publishes in one claim"
    )
    mirror_threads: Limit = Field(default=8, description="tables published side by side")
    mirror_lease_ms: Annotated[int, Field(ge=500)] = Field(
        default=4_000, description="how long a claim outlives a mirror that died"
    )
    spark_master: str = Field(
        default="local[*]",
        min_length=1,
        description="where Spark's work is done: a master URL, or sc://HOST:PORT for Connect",
    )
    readers: Path = Field(default=Path(".readers"), description="what `make readers` has made")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what it is given: `load_settings` merges the sources, to know which one won."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @field_validator("allowed_roots", "store_credentials", "single_writer", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return orjson.loads(value)
        return [part.strip() for part in value.split(",") if part.strip()]

    @field_validator("allowed_roots")
    @classmethod
    def _check_roots(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(normalise_location(root).uri for root in value)
        except LocationError as exc:
            raise ValueError(exc.message) from exc

    @field_validator("single_writer")
    @classmethod
    def _check_stores(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            places = [normalise_location(store) for store in value]
        except LocationError as exc:
            raise ValueError(exc.message) from exc
        return tuple(f"{place.scheme}://{place.host}" for place in places)

    @field_validator("store_credentials")
    @classmethod
    def _check_credentials(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known = sorted(frozenset().union(*CREDENTIALS.values()))
        for pair in value:
            name, equals, variable_name = pair.partition("=")
            if name not in known or not equals or not _VARIABLE.fullmatch(variable_name):
                message = f"as NAME=VARIABLE, where NAME is one of {', '.join(known)}"
                raise ValueError(message)
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    def store_options(self) -> StoreOptions:
        """How stores are reached; the secrets are looked up now, by the names given.

        Raises ConfigurationError for a variable or file that is not there, StoreConfigError for
        values that cannot work.
        """
        pairs = (pair.partition("=") for pair in self.store_credentials)
        return StoreOptions(
            endpoint=self.store_endpoint,
            region=self.store_region,
            path_style=self.store_path_style,
            allow_http=self.store_allow_http,
            anonymous=self.store_anonymous,
            kms_key_id=self.store_kms_key_id,
            ca_certificates=_read_certificates(self.store_ca_file),
            request_timeout_s=self.store_request_timeout,
            durable=self.store_durable,
            credentials=tuple((name, _secret(name, source)) for name, _, source in pairs),
        )

    def allows(self, place: Location) -> bool:
        """Whether a table may live there."""
        roots = [normalise_location(root).key for root in self.allowed_roots]
        return not roots or any(within(root, place.key) for root in roots)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSetting:
    """One setting as it is in force, fit to be shown: passwords are gone."""

    key: str
    value: str | int | list[str] | None
    source: Source
    #: the file, the variable or the option that was read
    origin: str | None
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings in force, and where each came from."""

    settings: Settings
    origins: Mapping[str, tuple[Source, str | None]]

    def effective(self) -> list[EffectiveSetting]:
        """Every setting with its source."""
        return [
            EffectiveSetting(
                key=key,
                value=_shown(getattr(self.settings, key)),
                source=self.origins[key][0],
                origin=self.origins[key][1],
                description=field.description or "",
            )
            for key, field in Settings.model_fields.items()
        ]


def load_settings(options: Mapping[str, Any] | None = None) -> LoadedSettings:
    """The settings from all sources; `options` are those of the command line that were given.

    Raises ConfigurationError, which names the setting, its source and the way out, and never
    shows a value that may be a secret.
    """
    values: dict[str, Any] = {}
    origins: dict[str, tuple[Source, str | None]] = dict.fromkeys(
        Settings.model_fields, (Source.DEFAULT, None)
    )
    path = _config_path()
    given = {key: value for key, value in (options or {}).items() if value is not None}
    for source, found in (
        (Source.FILE, _read_file(path)),
        (Source.ENVIRONMENT, EnvSettingsSource(Settings)()),
        (Source.OPTION, given),
    ):
        values |= found
        origins |= {key: (source, _origin(source, key, path)) for key in found}
    try:
        return LoadedSettings(settings=Settings(**values), origins=origins)
    except ValidationError as exc:
        raise _refused(exc, origins) from exc


def redact(text: str) -> str:
    """A URL, or a text with one in it, without its password."""
    return _QUERY_PASSWORD.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", text))


def variable(key: str) -> str:
    """The environment variable of a setting."""
    return f"{ENV_PREFIX}{key.upper()}"


def unknown_variables() -> list[str]:
    """Variables that look like settings and are none: most likely a slip."""
    known = {variable(key) for key in Settings.model_fields} | {_CONFIG_VARIABLE}
    return sorted(name for name in os.environ if name.startswith(ENV_PREFIX) and name not in known)


def java_home() -> Path | None:
    """Where Java is said to be."""
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def dagster_home() -> Path | None:
    """Where the Dagster instance keeps what it keeps; None for one that is not kept."""
    home = os.environ.get("DAGSTER_HOME")
    return Path(home) if home else None


def _config_path() -> Path | None:
    """The file to read; None without one."""
    named = os.environ.get(_CONFIG_VARIABLE)
    if named:
        return Path(named)
    path = Path(CONFIG_FILE)
    return path if path.exists() else None


def _read_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as exc:
        message = f"the settings file {path} cannot be read: {exc.strerror}"
        remedy = f"correct the path in {_CONFIG_VARIABLE}, or unset it"
        raise ConfigurationError(message, remedy=remedy) from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        message = f"the settings file {path} is not TOML: {exc}"
        raise ConfigurationError(message, remedy="correct the file at that place") from exc


def _origin(source: Source, key: str, path: Path | None) -> str:
    match source:
        case Source.FILE:
            return str(path)
        case Source.ENVIRONMENT:
            return variable(key)
        case _:
            return f"--{key.removesuffix('_url').replace('_', '-')}"


def _refused(
    exc: ValidationError, origins: Mapping[str, tuple[Source, str | None]]
) -> ConfigurationError:
    first = exc.errors(include_input=False, include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    source, origin = origins.get(key, (Source.DEFAULT, None))
    where = f"{source} ({origin})" if origin and origin != source.value else source.value
    if first["type"] == "extra_forbidden":
        close = difflib.get_close_matches(key, Settings.model_fields, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else "remove it; docs/cli.md lists them"
        return ConfigurationError(f"there is no setting {key!r} ({where})", remedy=remedy)
    meaning = Settings.model_fields[key].description if key in Settings.model_fields else None
    way_out = f"correct it there: {meaning}" if meaning else None
    reason = first["msg"].removeprefix("Value error, ")
    return ConfigurationError(f"the setting {key!r} from {where}: {reason}", remedy=way_out)


def _secret(name: str, source: str) -> Secret:
    value = os.environ.get(source)
    if not value:
        message = f"the environment variable {source}, which holds the {name}, is not set"
        raise ConfigurationError(
            message, remedy=f"set it, or correct {variable('store_credentials')}"
        )
    return Secret(value)


def _read_certificates(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        message = f"the certificates in {path} cannot be read"
        raise ConfigurationError(message, remedy="correct store_ca_file") from exc


def _shown(value: Any) -> str | int | list[str] | None:
    match value:
        case SecretStr():
            text = value.get_secret_value()
            return "***" if text.startswith("http") else redact(text)
        case tuple():
            return list(value)
        case IsolationLevel():
            return value.value
        case int() | str() | None:
            return value
        case _:
            return str(value)
