"""The command reference (docs/commands.md) and the man page, both from the command tree. `make docs` writes them."""

import re
from collections.abc import Iterable, Iterator

from tidegate.cli.command_tree import Command, Parameter
from tidegate.cli.status import ExitStatus

_INTRODUCTION = """\
# Commands

This page is generated from the commands themselves: `make docs` writes it, and a test keeps it up to date.
`tidegate COMMAND --help` prints the same on a terminal, and `man tidegate` has it in one piece where the package
installed it. `tidegate completion SHELL` makes the Tab key know all of it ([install.md](install.md)).
"""

STATUS = {
    ExitStatus.OK: "ended as asked",
    ExitStatus.FAILURE: "the command ran, and its answer is no",
    ExitStatus.USAGE: "the command line makes no sense",
    ExitStatus.STARTUP: "the node could not start: address in use, certificate unreadable",
    ExitStatus.CONFIG: "a setting was refused",
    ExitStatus.INTERRUPTED: "interrupted by Ctrl-C",
}


def render_markdown(root: Command) -> str:
    """docs/commands.md."""
    lines = [_INTRODUCTION]
    for command in root.walk():
        if not command.path:
            continue
        lines += [f"{'#' * (len(command.path) + 1)} {command.name}", ""]
        lines += [_paragraphs(command.help), ""]
        lines += ["```text", f"{command.name} {command.usage}".strip(), "```", ""]
        lines += _markdown_table("Argument", command.arguments)
        lines += _markdown_table("Option", _without_help(command.options))
    lines += ["## Exit status", "", "| Status | Meaning |", "|---|---|"]
    lines += [f"| {int(status)} | {text} |" for status, text in STATUS.items()]
    return "\n".join(lines) + "\n"


def _paragraphs(help: str) -> str:
    """One line a paragraph; backslashes that keep typer from joining lines are its own business."""
    return "\n\n".join(" ".join(part.replace("\b", "").split()) for part in help.split("\n\n"))


def _without_help(options: Iterable[Parameter]) -> list[Parameter]:
    return [option for option in options if "--help" not in option.names]


def _markdown_table(title: str, parameters: Iterable[Parameter]) -> Iterator[str]:
    rows = list(parameters)
    if not rows:
        return
    yield from (f"| {title} | Meaning |", "|---|---|")
    for row in rows:
        yield f"| `{_cell(row.usage)}` | {_cell(row.help)} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def render_man(root: Command, version: str) -> str:
    """tidegate(1), in the man macros that groff and mandoc know."""
    lines = [
        f'.TH TIDEGATE 1 "" "tidegate {_roff(version)}" "User Commands"',
        ".SH NAME",
        "tidegate \\- an MQTT 3.1.1 and 5.0 broker, and its clients and tools",
        ".SH SYNOPSIS",
        ".B tidegate",
        ".I COMMAND",
        "[\\fIOPTION\\fR]...",
        ".SH DESCRIPTION",
        "Without any settings,",
        ".B tidegate serve",
        "listens on 127.0.0.1:1883.",
        "Settings come from a TOML file, the environment and the command line; later ones win.",
        ".SH COMMANDS",
    ]
    for command in root.walk():
        if not command.path:
            continue
        lines += [f".SS {_roff(command.name)} {_roff(command.usage)}".rstrip()]
        for at, part in enumerate(_paragraphs(command.help).split("\n\n")):
            lines += ([".PP"] if at else []) + [_roff(part)]
        for row in (*command.arguments, *_without_help(command.options)):
            lines += [".TP", f".B {_roff(row.usage)}", _roff(row.help) or "\\&"]
    lines += [".SH EXIT STATUS"]
    for status, text in STATUS.items():
        lines += [".TP", f".B {int(status)}", _roff(text)]
    lines += [
        ".SH ENVIRONMENT",
        ".TP",
        ".B TIDEGATE_CONFIG",
        "The settings file, as \\-\\-config.",
        ".TP",
        ".B TIDEGATE_TABLE__KEY",
        "One setting; two underscores stand for a dot, as in TIDEGATE_LIMITS__MAX_CONNECTIONS=500.",
        ".SH SIGNALS",
        ".B serve",
        "stops gracefully at SIGTERM and SIGINT,",
        "and reads settings, certificates, accounts and rights again at SIGHUP.",
    ]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    """Text that groff prints as it is: a minus stays one, a leading dot or quote is no request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return re.sub(r"^([.'])", r"\\&\1", text)
