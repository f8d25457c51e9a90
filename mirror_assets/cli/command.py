"""A command of ours: the options all have, and the one edge where errors become exit codes."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any, Final, get_type_hints

import typer

from mirror_assets.cli.exits import ExitCode, exit_code_of
from mirror_assets.cli.output import ConsoleOutput, JsonOutput, Output
from mirror_assets.cli.session import Session
from mirror_assets.errors import MirrorAssetsError

_PANEL: Final = "Options of every command"
_AsJson = Annotated[
    bool,
    typer.Option("--json", help="Answer with one JSON document.", rich_help_panel=_PANEL),
]
_MetastoreUrl = Annotated[
    str | None,
    typer.Option(
        "--metastore",
        metavar="URL",
        help="The metastore: sqlite:///, duckdb:/// or postgresql://.",
        rich_help_panel=_PANEL,
    ),
]
_Debug = Annotated[
    bool,
    typer.Option("--debug", help="Show the traceback of a failure.", rich_help_panel=_PANEL),
]
_COMMON: Final = {
    "as_json": (_AsJson, False),
    "metastore_url": (_MetastoreUrl, None),
    "debug": (_Debug, False),
}


def add_command(app: typer.Typer, name: str, work: Callable[..., ExitCode]) -> None:
    """Make a word of the command line from a function whose first argument is the session."""

    def run(*, as_json: bool, metastore_url: str | None, debug: bool, **arguments: object) -> None:
        output = JsonOutput() if as_json else ConsoleOutput()
        session = Session(output, metastore_url)
        try:
            code = work(session, **arguments)
        except MirrorAssetsError as exc:
            _show_traceback(debug=debug)
            output.error(exc)
            code = exit_code_of(exc)
        except (BrokenPipeError, typer.Exit, typer.TyperException):
            raise
        except Exception as exc:  # noqa: BLE001 - the edge: nobody above could do better
            _show_traceback(debug=debug)
            code = _unexpected(output, exc)
        finally:
            session.close()
        raise typer.Exit(code)

    run.__doc__ = work.__doc__
    run.__signature__ = _signature(work)  # type: ignore[attr-defined] # read by inspect
    run.__annotations__ = {p.name: p.annotation for p in _signature(work).parameters.values()}
    app.command(name)(run)


def _signature(work: Callable[..., ExitCode]) -> inspect.Signature:
    """The function's own arguments but for the session, then those of every command."""
    hints = get_type_hints(work, include_extras=True)
    own = list(inspect.signature(work).parameters.values())[1:]
    keyword: Any = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [p.replace(annotation=hints[p.name], kind=keyword) for p in own]
        + [
            inspect.Parameter(name, keyword, default=default, annotation=annotation)
            for name, (annotation, default) in _COMMON.items()
        ]
    )


def _unexpected(output: Output, exc: Exception) -> ExitCode:
    reason = f"{type(exc).__name__}: {exc}".partition("\n")[0]
    remedy = "this is a bug: `--debug` shows the traceback; please report it"
    output.error(MirrorAssetsError(f"unexpected {reason}", remedy=remedy))
    return ExitCode.FAILED


def _show_traceback(*, debug: bool) -> None:
    if debug:
        from mirror_assets.settings import redact  # noqa: PLC0415 - for the start-up time

        sys.stderr.write(redact(traceback.format_exc()))
