"""Writes docs/commands.md and packaging/man/tidegate.1 from the commands (`make docs`)."""

from pathlib import Path

from tidegate import __version__
from tidegate.cli.command_pages import render_man, render_markdown
from tidegate.cli.command_tree import read_commands

if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    commands = read_commands()
    for path, text in {
        root / "docs" / "commands.md": render_markdown(commands),
        root / "packaging" / "man" / "tidegate.1": render_man(commands, __version__),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(root)}")
