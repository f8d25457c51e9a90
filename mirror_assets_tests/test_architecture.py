"""The house rules that a machine can watch: directions, fences, and the size of things.

Design section 3: `errors, findings <- delta <- metastore | storage <- conformance | pipeline <-
mirror <- settings, cli, defs`. Every rule reads a module's syntax tree and returns what it found,
so that the second half of this file can show each rule a planted violation.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirror_assets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(mirror_assets.__file__).parent
ROOT = "mirror_assets"
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

_BASE = {"errors", "findings"}
_DELTA = _BASE | {"delta"}
_STORES = _DELTA | {"metastore", "storage"}
_TOOLS = _STORES | {"conformance", "pipeline"}
_ALL = _TOOLS | {"mirror"}
#: which parts of the package a part may import, beside itself
MAY_IMPORT = {
    "errors": set(),
    "findings": set(),
    "explanations": _BASE,
    "delta": _BASE,
    "metastore": _DELTA,
    "storage": _DELTA,
    "conformance": _STORES,
    "pipeline": _STORES,
    "mirror": _TOOLS,
    "platform_settings": _BASE,
    "settings": _ALL | {"platform_settings"},
    # What spark-submit starts reads the settings of its machine.
    "jobs": _ALL | {"settings"},
    "defs": _ALL | {"settings", "jobs"},
    "definitions": {"defs"},
    # The command line shows settings and explanations, and so stands above both.
    "cli": _ALL | {"settings", "explanations", "jobs"},
    # The demo is a reader's program: it uses what a reader would.
    "demo": _ALL,
}

_DRIVERS = {"sqlalchemy", "psycopg", "duckdb", "duckdb_engine", "sqlite3", "alembic"}
#: libraries by the modules that may import them, as path prefixes below the package
FENCES = {
    "dagster": ("defs/", "definitions.py"),
    **dict.fromkeys(_DRIVERS, ("metastore/",)),
    # It judges what others read, too; the demo reads a table with it, as a reader would.
    "duckdb": ("metastore/", "conformance/duckdb", "demo.py"),
    "adbc": ("metastore/",),
    "obstore": ("storage/",),
    # A second opinion is a program of its own, in an environment without this project.
    "pyspark": ("pipeline/", "conformance/spark", "conformance/second_opinion.py", "jobs/"),
    "pydantic": ("settings.py", "platform_settings.py", "defs/"),
    "typer": ("cli/",),
    "rich": ("cli/", "demo.py"),
}
#: `delta/` takes values and returns values
IMPURE_MODULES = {
    *("asyncio", "glob", "logging", "os", "pathlib", "random", "secrets", "shutil", "socket"),
    *("structlog", "subprocess", "sys", "tempfile", "threading", "time", "urllib.request", "uuid"),
}
IMPURE_CALLS = {"breakpoint", "input", "open", "print"}
CLOCK_CALLS = {"now", "today", "utcnow"}


@dataclass(frozen=True)
class Module:
    """A source file of the package; `path` is relative to it."""

    path: str
    source: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def part(self) -> str:
        return self.path.partition("/")[0].removesuffix(".py")

    @property
    def package(self) -> list[str]:
        """What a relative import starts from."""
        return [ROOT, *self.path.split("/")[:-1]]

    def is_in(self, *prefixes: str) -> bool:
        return self.path.startswith(prefixes)


def imports(module: Module, tree: ast.AST | None = None) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, under `if TYPE_CHECKING` too."""
    for node in ast.walk(tree or module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.package[: len(module.package) - node.level + 1]
                base = ".".join([*package, base] if base else package)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def wrong_directions(module: Module) -> list[str]:
    """Imports of a part that stands beside or above."""
    found = []
    for line, name in imports(module):
        words = name.split(".")
        if words[0] != ROOT or len(words) < 2 or not _is_part(words[1]):
            continue
        if words[1] != module.part and words[1] not in MAY_IMPORT.get(module.part, set()):
            found.append(f"{module.path}:{line} {module.part} imports {words[1]}")
    return found


def climbed_fences(module: Module) -> list[str]:
    """Imports of a library outside of its room."""
    found = []
    for line, name in imports(module):
        library = name.partition(".")[0]
        for fenced, rooms in FENCES.items():
            is_fenced = library == fenced or library.startswith(f"{fenced}_")
            if is_fenced and not module.is_in(*rooms):
                found.append(f"{module.path}:{line} imports {library}")
                break
    return found


def local_imports(module: Module) -> list[str]:
    """Imports of our own modules inside a function: the usual way to hide a cycle.

    The command line may, for its start-up time: `--help` must not wait for SQL drivers.
    """
    if module.is_in("cli/"):
        return []
    return [
        f"{module.path}:{line} imports {name} inside {function.name}()"
        for function in _functions(module)
        for line, name in imports(module, function)
        if name.partition(".")[0] == ROOT
    ]


def environment_readers(module: Module) -> list[str]:
    """Who reads the environment; only the settings may, and a program of its own."""
    if module.path in ("settings.py", "conformance/second_opinion.py"):
        return []
    words = {"environ", "environb", "getenv", "getenvb", "putenv"}
    found = [
        f"{module.path}:{node.lineno} uses os.{node.attr}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in words
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]
    return found + [
        f"{module.path}:{line} imports {name}"
        for line, name in imports(module)
        if name in {f"os.{word}" for word in words}
    ]


def impurities(module: Module) -> list[str]:
    """What `delta/` must not do: input and output, clocks, chance, logs."""
    if not module.is_in("delta/"):
        return []
    found = [
        f"{module.path}:{line} imports {name}"
        for line, name in imports(module)
        if any(name == bad or name.startswith(f"{bad}.") for bad in IMPURE_MODULES)
    ]
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"{module.path}:{node.lineno} calls {node.func.id}()")
        if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
            found.append(f"{module.path}:{node.lineno} calls .{node.func.attr}()")
    return found


def oversized(module: Module) -> list[str]:
    """Files and functions that became a junk room."""
    lines = module.source.count("\n")
    found = [f"{module.path} has {lines} lines"] if lines > MAX_FILE_LINES else []
    for function in _functions(module):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        # A migration is one list of columns: cutting it in pieces would hide what it does.
        if length > MAX_FUNCTION_LINES and "/migrations/" not in module.path:
            found.append(f"{module.path}:{function.lineno} {function.name}() has {length} lines")
    return found


def unknown_parts(module: Module) -> list[str]:
    """A new room needs its place in the order."""
    known = module.part in MAY_IMPORT or module.path == "__init__.py"
    return [] if known else [f"{module.path} is in no known part"]


def _functions(module: Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _is_part(name: str) -> bool:
    return name in MAY_IMPORT or (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def imports_of_ours(module: Module) -> list[str]:
    """What runs in another environment has nothing of this project there."""
    if module.path != "conformance/second_opinion.py":
        return []
    return [
        f"{module.path}:{line} imports {name}"
        for line, name in imports(module)
        if name.partition(".")[0] == ROOT
    ]


RULES = [
    unknown_parts,
    wrong_directions,
    climbed_fences,
    local_imports,
    environment_readers,
    impurities,
    oversized,
    imports_of_ours,
]
MODULES = [
    Module(path.relative_to(PACKAGE).as_posix(), path.read_text())
    for path in sorted(PACKAGE.rglob("*.py"))
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps_the_house_rule(rule: Callable[[Module], list[str]]) -> None:
    assert [found for module in MODULES for found in rule(module)] == []


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        (unknown_parts, "attic/box.py", ""),
        (wrong_directions, "delta/actions.py", "from mirror_assets.metastore import tables"),
        (wrong_directions, "delta/actions.py", "from mirror_assets import metastore"),
        (wrong_directions, "delta/actions.py", "from ..metastore import tables"),
        (wrong_directions, "metastore/rows.py", "import mirror_assets.storage.log_source"),
        (wrong_directions, "storage/log_source.py", "from mirror_assets.metastore import rows"),
        (wrong_directions, "pipeline/work.py", "from mirror_assets.conformance import rules"),
        (wrong_directions, "mirror/engine.py", "from mirror_assets.settings import Settings"),
        (wrong_directions, "errors.py", "from mirror_assets.findings import Finding"),
        (wrong_directions, "defs/sensors.py", "from mirror_assets.cli import app"),
        (wrong_directions, "jobs/backfill.py", "from mirror_assets.cli import app"),
        (
            wrong_directions,
            "metastore/rows.py",
            "if TYPE_CHECKING:\n    from mirror_assets.storage.log_source import LogSource",
        ),
        (climbed_fences, "mirror/engine.py", "import dagster as dg"),
        (climbed_fences, "mirror/engine.py", "from dagster_aws.s3 import resource"),
        (climbed_fences, "cli/health.py", "from sqlalchemy import select"),
        (climbed_fences, "cli/health.py", "import sqlite3"),
        (climbed_fences, "mirror/engine.py", "import adbc_driver_manager.dbapi"),
        (climbed_fences, "metastore/importer.py", "import obstore"),
        (climbed_fences, "conformance/rules.py", "from pyspark.sql import SparkSession"),
        (climbed_fences, "delta/actions.py", "from pydantic import BaseModel"),
        (
            local_imports,
            "mirror/engine.py",
            "def go():\n    from mirror_assets.metastore import tables",
        ),
        (environment_readers, "cli/app.py", "import os\nos.environ['X']"),
        (environment_readers, "cli/app.py", "from os import getenv"),
        (
            imports_of_ours,
            "conformance/second_opinion.py",
            "from mirror_assets.conformance.digests import digest_of",
        ),
        (impurities, "delta/schema.py", "open('x')"),
        (impurities, "delta/schema.py", "from pathlib import Path"),
        (impurities, "delta/schema.py", "import os.path"),
        (impurities, "delta/schema.py", "import time"),
        (impurities, "delta/schema.py", "from datetime import datetime\ndatetime.now()"),
        (impurities, "delta/schema.py", "import logging"),
        (oversized, "delta/schema.py", "x = 1\n" * (MAX_FILE_LINES + 1)),
        (oversized, "delta/schema.py", "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
    ],
)
def test_a_planted_violation_is_found(
    rule: Callable[[Module], list[str]], path: str, source: str
) -> None:
    assert rule(Module(path, source))


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [
        (wrong_directions, "delta/actions.py", "from mirror_assets import __version__"),
        (wrong_directions, "delta/actions.py", "from mirror_assets.delta import schema"),
        (wrong_directions, "cli/app.py", "from mirror_assets.settings import load_settings"),
        (climbed_fences, "conformance/spark_reader.py", "import pyspark"),
        (climbed_fences, "metastore/dialect.py", "import sqlite3, duckdb, psycopg"),
        (local_imports, "cli/app.py", "def go():\n    from mirror_assets.metastore import rows"),
        (environment_readers, "settings.py", "import os\nos.environ['X']"),
        (imports_of_ours, "conformance/second_reader.py", "from mirror_assets import errors"),
        (impurities, "metastore/rows.py", "import time"),
    ],
)
def test_what_is_allowed_is_left_alone(
    rule: Callable[[Module], list[str]], path: str, source: str
) -> None:
    assert rule(Module(path, source)) == []
