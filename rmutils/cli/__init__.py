"""The command `rmutils`."""

from __future__ import annotations

import errno
import importlib
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.core import TyperGroup

from rmutils import __version__
from rmutils.cli import absent
from rmutils.core import paths
from rmutils.core.errors import UserError, printable


@dataclass(frozen=True)
class Listed:
    """A command: the module that has it, its line of help, and what is known before its import."""

    module: str
    help: str
    at_once: bool = False  # it keeps nothing to go on from
    clone: bool = False  # it needs the clone: its notebooks, stored results, environment


COMMANDS = {
    "models": Listed("rmutils.cli.models", "Models that have a name here: list, fetch, info, "
                     "train."),
    "detect": Listed("rmutils.cli.heads_commands", "Find the retrieval heads of a model."),
    "heads": Listed("rmutils.cli.heads_commands", "Head scores in the formats of others."),
    "mask": Listed("rmutils.cli.heads_commands", "Write a model with heads switched off."),
    "generate": Listed("rmutils.cli.method", "Sample responses, from the whole model or one with "
                       "heads masked."),
    "pairs": Listed("rmutils.cli.method", "Make preference pairs by one of the paper's "
                    "strategies."),
    "train": Listed("rmutils.cli.method", "Train a model on preference pairs."),
    "merge": Listed("rmutils.cli.method", "Write a whole model: of a LoRA adapter, a stored "
                    "training, any other."),
    "retmask": Listed("rmutils.cli.method", "The whole method: detect, mask, generate, train, "
                      "detect again."),
    "evaluate": Listed("rmutils.cli.evaluate", "Long-context scores, by HELMET's seven "
                       "categories."),
    "collect": Listed("rmutils.cli.evaluate", "Read HELMET's own result files into the same "
                      "table.", at_once=True),
    "artifacts": Listed("rmutils.cli.artifacts", "Stored results: list, fetch, verify, show, "
                        "promote, rm.", at_once=True),
    "paper": Listed("rmutils.cli.paper_commands", "The paper's tables and an audit of its "
                    "numbers.", at_once=True),
}
"""The library's commands; `add_commands` brings those of the book."""


class LazyCommands(TyperGroup):
    """Imports a command when it is called; a `UserError` is printed alone and exits with 2."""

    def main(self, args=None, *others, **named):
        """Remember the words, for the message after Ctrl-C; help does without slow libraries."""
        self.words = sys.argv[1:] if args is None else list(args)
        if args is None and "--help" in self.words and self.words[0] in COMMANDS and not (
                os.environ.get("RMUTILS_PLUGINS")):
            absent.install()  # nothing but help: a command must not run without them
            args = [*(word for word in self.words[:2] if word[:1] != "-"), "--help"]
        return super().main(args, *others, **named)

    def resolve_command(self, ctx, args):
        listed = COMMANDS.get(args[0])
        if listed and listed.clone and not paths.CHECKOUT and "--help" not in args:
            raise UserError(f"`{args[0]}` works in a clone of the book, with its notebooks and "
                            f"stored results. This is the package alone, in {paths.PACKAGE}.")
        if not (listed and listed.at_once) and "--help" not in args:
            from rmutils.core.environment import share_cores

            share_cores()
        if listed:
            self.commands[args[0]] = _load(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx):
        try:
            from rmutils.core.registry import load_plugins

            load_plugins(*ctx.params["plugin"] or ())  # before its options are made
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _reason(error)
            raise
        except UserError as error:
            typer.echo(f"rmutils: {printable(str(error))}", err=True)
            raise typer.Exit(2) from error
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            typer.echo(f"rmutils: {str(error.filename)[:80]}...: this name is too long.", err=True)
            raise typer.Exit(2) from error
        except ModuleNotFoundError as error:
            from rmutils.core.extras import lacking

            if (told := lacking(error)) is None:
                raise
            typer.echo(f"rmutils: {told}", err=True)
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            typer.echo("\nrmutils: stopped." + (
                f" What was finished is kept: `{shlex.join(['rmutils', *self.words])}` goes on "
                "from there." if not COMMANDS[ctx.invoked_subcommand].at_once else ""), err=True)
            raise typer.Exit(130) from None


def _reason(error: typer.BadParameter) -> str:
    """Say what is wrong with a value, in this project's words if its configuration found it."""
    from pydantic import BaseModel, ValidationError

    from rmutils.core.validation import explain

    if isinstance(error.__cause__, ValidationError):
        return explain(error.__cause__, BaseModel).rstrip(".") + "."
    return error.message


def _load(name: str):
    """The command in its module: the Typer app `NAME_app`, or the function of that name."""
    from rmutils.cli.from_configs import Command

    module = importlib.import_module(COMMANDS[name].module)
    command = getattr(module, f"{name}_app", None)
    if command is None:
        function = getattr(module, name.replace("-", "_"))
        command = typer.Typer(add_completion=False)
        command.command(name, cls=getattr(function, "command_class", Command))(function)
    return typer.main.get_command(command)


def hyphens(name: str) -> str:
    """Return the spelling of an option: `--some_name` is `--some-name`."""
    return name.replace("_", "-")


app = typer.Typer(cls=LazyCommands, no_args_is_help=True, add_completion=False,
                  pretty_exceptions_enable=False,
                  context_settings={"token_normalize_func": hyphens})


def add_commands(commands: Mapping[str, Listed]) -> None:
    """Offer commands of code outside the library, as the book's."""
    COMMANDS.update(commands)
    for name, listed in commands.items():
        app.command(name, help=listed.help)(lambda: None)


add_commands(COMMANDS)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rmutils {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True,
                                          help="Show the version.")] = False,
    plugin: Annotated[list[str] | None, typer.Option(
        metavar="<file|module>", help="Code of yours that registers strategies, attention, data "
        "sets, ...; comes before the command, and can be given several times. Also in "
        "RMUTILS_PLUGINS.")] = None,
):
    """Find, measure and mask retrieval heads; run the book's notebooks."""
