"""Wheel and source archive can be built, hold what they should, and give a program that runs."""

import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tidegate import __version__

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both archives; the wheel is made from the source archive, so what is missing there shows."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_the_source_archive_has_what_is_needed_to_test_and_build(built: Path) -> None:
    with tarfile.open(built / f"tidegate-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "pyproject.toml",
        "constraints.txt",
        "Makefile",
        "mkdocs.yml",
        "docs/index.md",
        "tests/strategies.py",
    }
    wanted |= {"packaging/man/tidegate.1", "packaging/tidegate.service", "src/tidegate/py.typed", "LICENSE"}
    wanted |= {"packaging/rpc/kubernetes/keda.yaml", "packaging/compose.yaml"}
    assert wanted <= names
    # Whatever tests read beside themselves comes with them.
    tests = [file.read_text(encoding="utf-8") for file in (REPOSITORY / "tests").glob("*/*.py")]
    read = {name for text in tests for name in re.findall(r'REPOSITORY / "([\w./-]+)"', text)}
    assert ".dockerignore" in read
    assert {name for name in read if name not in names and not any(n.startswith(f"{name}/") for n in names)} == set()
    assert not any("node_modules" in name or "__pycache__" in name for name in names)


def test_the_wheel_has_its_extras_and_the_manual_page(built: Path) -> None:
    with zipfile.ZipFile(built / f"tidegate-{__version__}-py3-none-any.whl") as archive:
        names = archive.namelist()
        metadata = HeaderParser().parsestr(
            archive.read(f"tidegate-{__version__}.dist-info/METADATA").decode()
        )
    assert "tidegate/py.typed" in names
    assert any(name.endswith(".data/data/share/man/man1/tidegate.1") for name in names)
    assert not any(name.startswith(("tests/", "docs/")) for name in names)
    assert set(metadata.get_all("Provides-Extra", [])) == extras()
    assert metadata["Requires-Python"] == ">=3.11"


def extras() -> set[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return set(project["optional-dependencies"])


def test_every_extra_that_is_named_to_anybody_exists() -> None:
    files = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "src").rglob("*.py")]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    groups = re.findall(r"(?:tidegate|'\.|\"\.)\[([a-z]+(?:,[a-z]+)*)\]", text)
    named = {extra for group in groups for extra in group.split(",")}
    assert {"console", "lake", "rpc", "spark"} <= named
    assert named <= extras()


def test_the_wheel_runs_where_it_is_installed(built: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    # The packages it depends on are those of this environment: the wheel alone is installed.
    venv.create(place, with_pip=False, symlinks=True)
    wheel = built / f"tidegate-{__version__}-py3-none-any.whl"
    install = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    options = ["--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run([*install, *options], check=True, capture_output=True, timeout=100)
    assert (place / "share" / "man" / "man1" / "tidegate.1").exists()
    packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    (next((place / "lib").glob("python*")) / "site-packages" / "borrowed.pth").write_text(
        str(packages), encoding="utf-8"
    )
    result = subprocess.run(
        [place / "bin" / "tidegate", "--version"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, f"tidegate {__version__}\n"), result.stderr
