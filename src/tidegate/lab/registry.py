"""Finds experiments by name: one name, or all of a paper by its number or folder."""

from __future__ import annotations

from difflib import get_close_matches

from tidegate.lab.backoff import PAPER as BACKOFF
from tidegate.lab.errors import UnknownExperiment
from tidegate.lab.experiment import Experiment, Paper
from tidegate.lab.rpc import PAPER as RPC
from tidegate.lab.shared import PAPER as SHARED

PAPERS: tuple[Paper, ...] = (BACKOFF, RPC, SHARED)
NEAREST = 3


def find(name: str, papers: tuple[Paper, ...] = PAPERS) -> list[tuple[Paper, Experiment]]:
    """All experiments that a name stands for; raises `UnknownExperiment`."""
    wanted = name.lower()
    for paper in papers:
        if wanted in (str(paper.number), paper.name):
            return [(paper, experiment) for experiment in paper.experiments]
        for experiment in paper.experiments:
            # The number alone is enough: `e1.1` for `e1.1-traffic`.
            if wanted in (experiment.name, experiment.name.partition("-")[0]):
                return [(paper, experiment)]
    raise UnknownExperiment(name, _nearest(wanted, papers))


def _nearest(wanted: str, papers: tuple[Paper, ...]) -> list[str]:
    names = [paper.name for paper in papers]
    names += [experiment.name for paper in papers for experiment in paper.experiments]
    words = {part: name for name in reversed(names) for part in (name, *name.split("-"))}
    found = get_close_matches(wanted, words, n=NEAREST, cutoff=0.4)
    return list(dict.fromkeys(words[word] for word in found)) or names[:NEAREST]
