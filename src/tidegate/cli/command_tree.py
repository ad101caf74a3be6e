"""The commands as plain data, read from the typer application: for the reference page, the man page and shells."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from typer.main import get_command

from tidegate.cli.main import build_app


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An option, or an argument when `names` is empty. `usage` and `help` are what --help shows of it."""

    names: tuple[str, ...] = ()
    usage: str = ""
    help: str = ""
    takes_value: bool = False
    metavar: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """`path` is what one types after tidegate; empty for tidegate itself."""

    path: tuple[str, ...]
    help: str
    usage: str
    arguments: tuple[Parameter, ...] = ()
    options: tuple[Parameter, ...] = ()
    commands: tuple["Command", ...] = field(default=())

    @property
    def name(self) -> str:
        return " ".join(("tidegate", *self.path))

    @property
    def summary(self) -> str:
        """Its first paragraph on one line."""
        return " ".join(self.help.split("\n\n", 1)[0].split())

    def walk(self) -> Iterator["Command"]:
        """This command and all below it, in the order of --help."""
        yield self
        for command in self.commands:
            yield from command.walk()


def read_commands() -> Command:
    """Imports every command module, which takes a moment."""
    return _read(get_command(build_app([])), ())


def _read(command: Any, path: tuple[str, ...]) -> Command:
    # Typer brings a click of its own in some versions; what is used here is the same in all.
    context = command.context_class(command, info_name=" ".join(("tidegate", *path)))
    parameters = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    return Command(
        path=path,
        help=(command.help or "").strip(),
        usage=" ".join(command.collect_usage_pieces(context)),
        arguments=tuple(_argument(each) for each in parameters if each.param_type_name == "argument"),
        options=tuple(_option(each, context) for each in parameters if each.param_type_name == "option"),
        commands=tuple(
            _read(command.get_command(context, name), (*path, name))
            for name in (command.list_commands(context) if hasattr(command, "list_commands") else ())
        ),
    )


def _argument(parameter: Any) -> Parameter:
    metavar = parameter.metavar or parameter.name.upper()
    return Parameter(usage=metavar, help=_one_line(parameter.help or ""), metavar=metavar)


def _option(parameter: Any, context: Any) -> Parameter:
    usage, text = parameter.get_help_record(context)
    return Parameter(
        names=(*parameter.opts, *parameter.secondary_opts),
        usage=usage,
        help=_one_line(text),
        takes_value=not parameter.is_flag and not parameter.count,
        metavar=parameter.metavar or "",
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
