"""What `pyproject.toml` cannot say: an installed package has the small data inside.

Models, texts, tables and plans, 25 MB, go to `rmutils/data`. Stored results and runs stay with the
clone.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

LARGE = "artifacts", "faults.json", "runs"


class WithData(build_py):
    """Copies the data beside the modules; an editable install finds it in the clone."""

    def run(self):
        super().run()
        if not self.editable_mode:
            shutil.copytree(Path(__file__).parent / "data", Path(self.build_lib, "rmutils", "data"),
                            ignore=shutil.ignore_patterns(*LARGE), dirs_exist_ok=True)


setup(cmdclass={"build_py": WithData})
