"""What answers at once does so because it does without what takes seconds to import."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.cli import COMMANDS

SLOW = ("accelerate", "datasets", "matplotlib", "pandas", "peft", "safetensors", "scipy",
        "tokenizers", "torch", "transformers", "trl", "vllm")


@pytest.mark.parametrize(("words", "said"), [
    (["-c", "import rmutils; print(rmutils.__version__)"], "."),
    (["-m", "rmutils", "run", "-p", "name", "--help"], "notebook"),  # not a run without torch
])
def test_package_and_help_do_without_slow_libraries(tmp_path, words, said):
    """They are in the way of each import, and raise."""
    for name in SLOW:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')")
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0 and said in done.stdout, done.stderr


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_the_list_of_commands_does_without_what_only_commands_need(word):
    code = ("import sys\nfrom rmutils.__main__ import app\ntry:\n    app()\nexcept SystemExit:\n"
            "    print(sorted({*sys.modules} & {'pydantic', 'numpy', 'psutil'}))")
    done = subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True,
                          check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout


HELP = f"""
import sys
from rmutils.__main__ import app
for words in sys.argv[1:]:
    sys.argv = ["root", *words.split(), "--help"]
    try:
        app(prog_name="root")
    except SystemExit:
        print()
real = [name for name in {SLOW!r} if getattr(sys.modules.get(name), "__file__", None)]
assert not real, real
"""


def test_help_of_every_command_does_without_slow_libraries_and_is_the_same():
    """In one process for all commands, so that what they share is imported once."""
    commands = [*COMMANDS, "variants answers", "variants layers", "models train", "paper audit"]
    quick = subprocess.run([sys.executable, "-c", HELP, *commands], capture_output=True, text=True)
    assert quick.returncode == 0, quick.stderr
    real = [CliRunner().invoke(app, [*words.split(), "--help"]).output for words in commands]
    assert quick.stdout == "".join(f"{text}\n" for text in real)
