"""`mirror-assets`: the words of the command line, and what they have in common.

A command is a function with a session as its first argument; `add_command` gives it `--json`,
`--metastore` and `--debug`, and turns errors into exit codes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from mirror_assets import __version__
from mirror_assets.cli import (
    commits,
    configuration,
    conformance,
    cuts,
    explaining,
    foreign,
    health,
    imports,
    metastores,
    mirror,
    mirror_states,
    repairs,
    reporting,
    states,
    tables,
)
from mirror_assets.cli.command import add_command
from mirror_assets.cli.exits import ExitCode, UsageError
from mirror_assets.cli.output import JsonOutput


class _Group(TyperGroup):
    """Says also in JSON that the command line was wrong."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        if "--json" not in words:
            return super().main(words, *rest, **extra)
        try:
            code = super().main(words, *rest, **{**extra, "standalone_mode": False})
        except typer.TyperException as exc:
            JsonOutput().error(UsageError(exc.format_message()))
            code = ExitCode.FAILED
        sys.exit(code)


app = typer.Typer(
    name="mirror-assets",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _about(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Delta tables whose commits are ratified in SQL."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


#: in the order of `--help`
_WORDS: Final[dict[str, Callable[..., ExitCode]]] = {
    "init": metastores.init,
    "create": tables.create,
    "import": imports.import_,
    "commit": commits.commit,
    "mirror": mirror.mirror,
    "status": mirror_states.status,
    "cut": cuts.cut,
    "checkpoint": mirror.checkpoint,
    "pause": mirror_states.pause,
    "resume": mirror_states.resume,
    "verify": conformance.verify,
    "report": reporting.report,
    "verify-store": mirror.verify_store,
    "diff": repairs.diff,
    "reconcile": repairs.reconcile,
    "cleanup": repairs.cleanup,
    "rebuild": repairs.rebuild,
    "fence": foreign.fence,
    "unfence": foreign.unfence,
    "release": foreign.release,
    "adopt": foreign.adopt,
    "fork": foreign.fork,
    "state": states.state,
    "history": states.history,
    "tables": tables.tables,
    "drop": tables.drop,
    "doctor": health.doctor,
    "explain": explaining.explain,
}
for _name, _work in _WORDS.items():
    add_command(app, _name, _work)
_config = typer.Typer(no_args_is_help=True, help="Look at the settings.")
add_command(_config, "show", configuration.show)
app.add_typer(_config, name="config")


def main() -> None:
    """The console script."""
    app()
