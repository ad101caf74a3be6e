"""E3.6: the levels with a real space broker and real clients; see `real_run`, which needs what not everybody has."""

from __future__ import annotations

from typing import Any

from tidegate.lab.active import real_page
from tidegate.lab.errors import LabError
from tidegate.lab.experiment import Context, Experiment, Part


def run(context: Context) -> dict[str, Any]:
    try:
        from tidegate.lab.active import real_run
    except ImportError as error:
        raise LabError(f"{error.name} is not installed", "pip install 'tidegate[space]'") from None
    return real_run.run(context)


EXPERIMENT = Experiment(
    name="e3.6-space",
    title="The levels over sockets",
    question="Do the levels of control behave with a real space broker and real clients as in the model?",
    run=run,
    present=real_page.present,
    parts=(Part.REAL,),
)
