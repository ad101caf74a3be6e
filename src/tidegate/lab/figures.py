"""Draws figures as PNG for Markdown and SVG for the HTML page. The only module that imports matplotlib."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.lab.errors import LabError
from tidegate.lab.experiment import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

STYLE: Any = {  # of a type that only matplotlib can spell
    "figure.figsize": (8.0, 4.5),
    "figure.constrained_layout.use": True,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 10.0,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    # Okabe and Ito's colours can be told apart by everybody.
    "axes.prop_cycle": "cycler('color', ['0072B2', 'D55E00', '009E73', 'CC79A7', 'E69F00', '56B4E9', '000000'])",
    "svg.fonttype": "none",
    # Without these two, the same data would give another file each time.
    "svg.hashsalt": "tidegate",
}


def check() -> None:
    """Raises `LabError` if nothing can be drawn: better before the work than after it."""
    if find_spec("matplotlib") is None:
        hint = "pip install 'tidegate[lab]', or in a copy of the repository '.[lab]'"
        raise LabError("matplotlib is not installed", hint)


def _canvas() -> Canvas:
    check()
    from matplotlib.figure import Figure as NewCanvas

    return NewCanvas()


def draw(figure: Figure, png: Path) -> str:
    """Write the PNG and return the same figure as SVG."""
    try:
        import matplotlib
    except ImportError:
        raise LabError("matplotlib is not installed", "pip install 'tidegate[lab]'") from None
    with matplotlib.rc_context(STYLE):
        canvas = _canvas()
        figure.draw(canvas)
        png.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(png, dpi=120, metadata={"Software": None})
        text = io.StringIO()
        canvas.savefig(text, format="svg", metadata={"Date": None})
    # Without the XML head it can stand in the middle of a page.
    return text.getvalue()[text.getvalue().index("<svg") :]
