"""`tidegate completion`: what makes the Tab key know the commands, printed as a script for a shell.

The script holds all words itself. Asking the program at each key would start Python each time.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tidegate.cli.command_tree import Command, Parameter

_BASH = """\
# Completion of tidegate for bash; printed by `tidegate completion bash`.
_tidegate() {
  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" path="" at
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "$path ${COMP_WORDS[at]}" in
@PATHS@
    esac
  done
  case "$path $before" in
@FILES@
  esac
  local words=""
  case "$path" in
@WORDS@
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [[ $word == -* || ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$word"))
}
complete -o filenames -F _tidegate tidegate
"""
_ZSH = "#compdef tidegate\nautoload -U +X bashcompinit && bashcompinit\n"


class Shell(StrEnum):
    """Shells that a script can be printed for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(shell: Annotated[Shell, typer.Argument(help="The shell that will read the script.")]) -> None:
    """Print the script that teaches a shell to complete tidegate's commands and options.

    For bash, put `eval "$(tidegate completion bash)"` into ~/.bashrc; for zsh the same with zsh into ~/.zshrc; for
    fish, write the output to ~/.config/fish/completions/tidegate.fish.
    """
    from tidegate.cli.command_tree import read_commands

    typer.echo(render(shell, read_commands()), nl=False)


def render(shell: Shell, root: "Command") -> str:
    """The script for a shell."""
    if shell is Shell.FISH:
        return "\n".join(_fish(root)) + "\n"
    script = _bash(root)
    return script if shell is Shell.BASH else _ZSH + script


def _bash(root: "Command") -> str:
    paths: list[str] = []
    files: list[str] = []
    words: list[str] = []
    for each in root.walk():
        path = " ".join(each.path)
        if each.path:
            parent = " ".join(each.path[:-1])
            paths.append(f'      "{parent} {each.path[-1]}") path="{path}" ;;')
        for option in filter(_takes_file, each.options):
            pattern = "|".join(f'"{path} {name}"' for name in option.names)
            files.append(f'    {pattern}) COMPREPLY=($(compgen -f -- "$word")); return ;;')
        known = [below.path[-1] for below in each.commands]
        known += [name for option in each.options for name in option.names]
        words.append(f'    "{path}") words="{" ".join(known)}" ;;')
    script = _BASH.replace("@PATHS@", "\n".join(paths)).replace("@FILES@", "\n".join(files))
    return script.replace("@WORDS@", "\n".join(words))


def _takes_file(option: "Parameter") -> bool:
    is_named = option.metavar in ("FILE", "DIR", "PATH")
    return option.takes_value and (is_named or option.usage.endswith("<path>"))


def _fish(root: "Command") -> Iterator[str]:
    yield "# Completion of tidegate for fish; printed by `tidegate completion fish`."
    for each in root.walk():
        # All words of its path were typed, and none of a command below it.
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in each.path)
        below = " ".join(command.path[-1] for command in each.commands)
        none = f"not __fish_seen_subcommand_from {below}" if below else ""
        condition = "; and ".join(part for part in (seen, none) if part)
        for command in each.commands:
            yield f"complete -c tidegate -f -n {_quote(condition)} -a {command.path[-1]} -d {_quote(command.summary)}"
        for option in each.options:
            yield " ".join(
                [
                    f"complete -c tidegate -n {_quote(condition)}",
                    *(
                        f"-{'l' if name.startswith('--') else 's'} {name.lstrip('-')}"
                        for name in option.names
                    ),
                    *(["-r", "-F"] if _takes_file(option) else ["-x"] if option.takes_value else []),
                    f"-d {_quote(option.help)}",
                ]
            )


def _quote(text: str) -> str:
    return "'" + re.sub(r"([\\'])", r"\\\1", text) + "'"
