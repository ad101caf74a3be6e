"""Makes docs/pictures, one of each page of the console (`make pictures`): the test that looks at each page takes them.

Needs Chromium (scripts/ensure-system) and the extras `console` and `test`. Takes about two minutes, since charts should
show a calm time, too.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEST = "tests/console/test_gallery.py::test_every_page_shows_what_it_is_for_and_has_its_picture_taken"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--calm", type=float, default=25.0, help="seconds before each thing that happens")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = {"CONSOLE_PICTURES": str(arguments.out.resolve()), "CONSOLE_CALM": str(arguments.calm)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", TEST]
    sys.exit(subprocess.run(command, cwd=ROOT, env=os.environ | wanted).returncode)


if __name__ == "__main__":
    main()
