from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror_assets.delta.locations import normalise_location
from mirror_assets.errors import ConfigurationError
from mirror_assets.settings import Source, load_settings, redact, unknown_variables

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and an environment without settings."""
    monkeypatch.chdir(tmp_path)
    for name in [*unknown_variables(), "MIRROR_METASTORE_URL", "MIRROR_CONFIG"]:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def effective(key: str, **options: str) -> tuple[object, str, str | None]:
    found = {setting.key: setting for setting in load_settings(options).effective()}[key]
    return found.value, found.source.value, found.origin


def test_a_default_names_itself_as_the_source() -> None:
    assert effective("metastore_url") == ("sqlite:///mirror.db", "default", None)


def test_the_file_wins_over_the_default_the_environment_over_the_file_an_option_over_all(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (somewhere / "mirror.toml").write_text('metastore_url = "sqlite:///file.db"')
    assert effective("metastore_url") == ("sqlite:///file.db", "mirror.toml", "mirror.toml")
    monkeypatch.setenv("MIRROR_METASTORE_URL", "sqlite:///env.db")
    assert effective("metastore_url") == (
        "sqlite:///env.db",
        "environment",
        "MIRROR_METASTORE_URL",
    )
    assert effective("metastore_url", metastore_url="sqlite:///option.db") == (
        "sqlite:///option.db",
        "option",
        "--metastore",
    )


def test_the_configuration_file_may_lie_elsewhere(
    somewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = somewhere / "deep" / "settings.toml"
    elsewhere.parent.mkdir()
    elsewhere.write_text('log_level = "DEBUG"')
    monkeypatch.setenv("MIRROR_CONFIG", str(elsewhere))
    assert effective("log_level") == ("debug", "mirror.toml", str(elsewhere))


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_METASTORE_URL", "")
    assert load_settings().origins["metastore_url"][0] is Source.DEFAULT


@pytest.mark.parametrize("text", ["/data, s3://bucket/tables", '["/data", "s3://bucket/tables"]'])
def test_roots_in_the_environment_are_a_list(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_ALLOWED_ROOTS", text)
    settings = load_settings().settings
    assert settings.allowed_roots == ("file:///data", "s3://bucket/tables")
    assert settings.allows(normalise_location("/data/t"))
    assert settings.allows(normalise_location("s3a://bucket/tables/t"))
    assert not settings.allows(normalise_location("/database/t"))
    assert not settings.allows(normalise_location("s3://bucket/other"))


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("MIRROR_BACKPRESSURE_WARN", "many", ["backpressure_warn", "integer"]),
        ("MIRROR_BACKPRESSURE_WAIT", "0", ["backpressure_wait", "greater than or equal to 1"]),
        ("MIRROR_ISOLATION", "Chaos", ["isolation", "WriteSerializable"]),
        ("MIRROR_LOG_LEVEL", "loud", ["log_level", "warning"]),
        ("MIRROR_ALLOWED_ROOTS", "relative/path", ["allowed_roots", "relative/path"]),
        ("MIRROR_ALLOWED_ROOTS", "/data/../etc", ["allowed_roots", "`..`"]),
        ("MIRROR_ALLOWED_ROOTS", "[not json", ["allowed_roots"]),
    ],
)
def test_a_bad_value_is_named_with_its_source_and_a_remedy(
    name: str, value: str, parts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert all(part in caught.value.message for part in [*parts, "environment", name])
    assert caught.value.remedy.startswith("correct it there")


def test_an_unknown_key_of_the_file_is_refused_with_its_neighbour(somewhere: Path) -> None:
    (somewhere / "mirror.toml").write_text('metastor_url = "sqlite:///x.db"')
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert "no setting 'metastor_url' (mirror.toml)" in caught.value.message
    assert caught.value.remedy == "did you mean 'metastore_url'?"


@pytest.mark.parametrize(
    "content", [b"metastore_url = ", b"\xff\xfe", b"a = 1\na = 2"], ids=["torn", "binary", "twice"]
)
def test_a_file_that_is_not_toml_is_refused(content: bytes, somewhere: Path) -> None:
    (somewhere / "mirror.toml").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"mirror\.toml is not TOML"):
        load_settings()


def test_a_named_file_that_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_CONFIG", "nowhere.toml")
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml cannot be read") as caught:
        load_settings()
    assert "MIRROR_CONFIG" in caught.value.remedy


def test_variables_that_are_no_settings_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRROR_METASTOR_URL", "sqlite:///x.db")
    assert unknown_variables() == ["MIRROR_METASTOR_URL"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://user:secret@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("postgresql+psycopg://user:se:c@re/t@host/db", "postgresql+psycopg://user:***@host/db"),
        ("postgresql://host/db?password=secret&x=1", "postgresql://host/db?password=***&x=1"),
        ("cannot reach postgresql://u:secret@h now", "cannot reach postgresql://u:***@h now"),
        ("sqlite:///dir:x/y@z.db", "sqlite:///dir:x/y@z.db"),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
    ],
)
def test_passwords_are_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_settings_do_not_show_the_password_by_accident() -> None:
    loaded = load_settings({"metastore_url": "postgresql://user:secret@host/db"})
    assert "secret" not in repr(loaded)
    assert "secret" not in repr(loaded.effective())
