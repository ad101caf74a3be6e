"""What can go wrong when an experiment is named or run; every error carries a hint that can be acted on."""

from tidegate.errors import TidegateError


class LabError(TidegateError):
    """An experiment cannot run here."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


class UnknownExperiment(LabError):
    """A name that is neither an experiment nor a paper; `nearest` are those it may have meant."""

    def __init__(self, name: str, nearest: list[str]) -> None:
        listed = ", ".join(nearest)
        super().__init__(
            f"there is no experiment {name!r}", f"did you mean {listed}? `tidegate lab list` names all"
        )
        self.name = name
        self.nearest = nearest
