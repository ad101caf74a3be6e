"""Writes docs/configuration.md from the settings classes (`make docs`)."""

from pathlib import Path

from tidegate.settings import render_reference

if __name__ == "__main__":
    page = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
    page.write_text(render_reference(), encoding="utf-8")
    print(f"wrote {page.name}")
