"""The guide builds without a complaint, leads nowhere that is not there, and loads nothing from outside."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse
from xml.etree import ElementTree

import pytest
import yaml

from tests.docs.pages import REPOSITORY

DOCS = REPOSITORY / "docs"
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Document(HTMLParser):
    """Links, anchors, and what a browser would load by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if values.get("rel") != "canonical" and LOADING.get(tag, "") in values:
            self.loaded.append(values[LOADING[tag]])


def build_site(folder: Path, **settings: object) -> None:
    """Built in this process: with `strict`, a warning is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    config = load_config(str(REPOSITORY / "mkdocs.yml"), site_dir=str(folder), **settings)
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    finally:
        config.plugins.on_shutdown()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    return folder


@pytest.fixture(scope="module")
def documents(site: Path) -> dict[Path, Document]:
    return {path: Document(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_is_there(site: Path) -> None:
    for path in DOCS.rglob("*.md"):
        assert (site / path.relative_to(DOCS).with_suffix(".html")).exists(), path.name


def test_a_page_that_is_listed_and_not_there_ends_the_build(tmp_path: Path) -> None:
    from mkdocs.exceptions import Abort

    with pytest.raises(Abort):
        build_site(tmp_path, nav=["index.md", "nowhere.md"])


def test_nothing_is_loaded_from_outside(site: Path, documents: dict[Path, Document]) -> None:
    outside = [
        f"{path.name}: {url}"
        for path, each in documents.items()
        for url in each.loaded
        if urlparse(url).netloc
    ]
    assert outside == []
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text(encoding="utf-8")), (
            style.name
        )


def test_every_link_leads_somewhere(site: Path, documents: dict[Path, Document]) -> None:
    broken = []
    for path, document in documents.items():
        if path.name == "404.html":
            continue  # its links begin at the root of a server
        for link in (*document.links, *document.loaded):
            url, anchor = urldefrag(link)
            if urlparse(url).scheme or urlparse(url).netloc:
                continue
            target = (path.parent / unquote(url)).resolve() if url else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                anchor and target in documents and anchor not in documents[target].anchors
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def entries(node: object) -> list[str]:
    if isinstance(node, str):
        return [node]
    if isinstance(node, dict):
        return [entry for below in node.values() for entry in entries(below)]
    assert isinstance(node, list)
    return [entry for below in node for entry in entries(below)]


def test_every_page_has_its_place_in_the_navigation() -> None:
    listed = entries(yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    assert len(listed) == len(set(listed))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    pages |= {
        path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "results").glob("*/README.md")
    }
    assert pages - set(listed) == set(), "mkdocs.yml does not list these"


@pytest.mark.parametrize("path", sorted((DOCS / "drawings").glob("*.svg")), ids=lambda path: path.name)
def test_a_drawing_says_in_words_what_it_shows(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    names = [child.tag.rpartition("}")[2] for child in root]
    assert names[:2] == ["title", "desc"] and all(len(child.text or "") > 10 for child in root[:2])
    assert "http" not in re.sub(r'xmlns="[^"]+"', "", path.read_text(encoding="utf-8"))
    used = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    assert f"drawings/{path.name}" in used
