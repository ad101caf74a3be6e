"""The program for plain `spark-submit`.

It has a folder to itself: Python looks for modules in the folder of a program first, and would take `pipeline/types.py`
for its own `types`.
"""

from pathlib import Path
from typing import Final

PROGRAM: Final = Path(__file__).with_name("tidegate_pipeline.py")
