"""Variables of the environment that were surely meant as settings, and are none.

A name with one underscore where two belong cannot be refused as a misspelt key is: container platforms put
variables such as TIDEGATE_PORT into the environment by themselves. So it is ignored, and somebody is told.
"""

import re
from collections.abc import Mapping

from tidegate.settings.load import ENVIRONMENT_PREFIX, known_keys


def misspelt_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Ignored variables, each with the name that would have counted."""
    meant = {key.replace(".", "_"): key.replace(".", "__").upper() for key in known_keys() if "." in key}
    found: dict[str, str] = {}
    for name, value in sorted(environ.items()):
        rest = name.removeprefix(ENVIRONMENT_PREFIX)
        # A platform's link to another service: TIDEGATE_METRICS_PORT=tcp://10.0.0.1:9100
        if rest == name or "__" in rest or "://" in value:
            continue
        index = re.search(r"_(\d+)_", rest)
        number = index[1] if index else "0"
        right = meant.get(re.sub(r"_\d+_", "_0_", rest.lower(), count=1))
        if right is not None:
            found[name] = ENVIRONMENT_PREFIX + right.replace("__0__", f"__{number}__")
    return found
