"""What MkDocs does beyond its settings, so that one set of Markdown files serves repository and guide.

- results/ and bench/ stay where the lab and the benchmark write them, and are pages of the guide all the same.
- A link that shows the name of a file, which is what a reader of the repository wants, shows the page's title here.
- Links that lead out of the guide, to source code, are shown as the name of the file: there is nothing to open.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_FENCE = re.compile(r"^(```|~~~)")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def outside_pages() -> list[Path]:
    """Pages outside docs/ that belong to the guide, and their figures."""
    found = [ROOT / "bench" / "README.md", ROOT / "results" / "README.md"]
    for pattern in ("README.md", "*.png", "*.svg"):
        found += sorted((ROOT / "results").glob(f"*/{pattern}"))
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in outside_pages():
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Links as the guide needs them; code blocks are left alone."""
    lines = []
    is_code = False
    for line in markdown.split("\n"):
        if _FENCE.match(line.strip()):
            is_code = not is_code
        lines.append(line if is_code else _LINK.sub(lambda found: _link(found, page, files), line))
    return "\n".join(lines)


def _link(found: re.Match[str], page: Page, files: Files) -> str:
    bang, text, target = found.groups()
    if "://" in target or target.startswith(("#", "mailto:")):
        return found[0]
    path, hash_, anchor = target.partition("#")
    folder = posixpath.dirname(page.file.src_uri)
    name = posixpath.normpath(posixpath.join(folder, path))
    # Seen from the repository, docs/ is one level further down than it is in the guide.
    for candidate in (
        name,
        name.removeprefix("../"),
        name.removeprefix("docs/"),
        name.removeprefix("../docs/"),
    ):
        for place in (candidate, f"{candidate}/README.md"):
            file = files.get_file_from_path(place)
            if file is not None:
                if text.endswith(".md") and file.abs_src_path:
                    text = _title(Path(file.abs_src_path)) or text
                return f"{bang}[{text}]({posixpath.relpath(place, folder or '.')}{hash_}{anchor})"
    if text.startswith("`"):
        return text
    return f"`{text}`" if text == target else f"{text} (`{name.removeprefix('../')}`)"


def _title(path: Path) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return found[1] if found else ""
