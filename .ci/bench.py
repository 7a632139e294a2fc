"""Make .venv-bench, where TransformerLens, nnsight and llama.cpp are, for `python -m benchmarks`.

It is laid over .venv: torch and transformers are those of .venv, so that all ways are compared with
the same versions. With `lock`: pin it anew.
"""

from __future__ import annotations

import os
import platform
import sys

import overlay
from lock import beside

TARGET, LOCK = overlay.ROOT / ".venv-bench", overlay.ROOT / "requirements-bench.lock"
WANTED = ["transformer-lens", "nnsight", "llama-cpp-python"]
WITHOUT_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
"""llama.cpp is built from its source. Where a virtual machine shows AMX but does not let
programs use it, the built library would crash."""
HEAD = """\
# What .venv-bench has beside the packages of requirements.lock, made by `python .ci/bench.py lock`.
"""


def make() -> str | None:
    """Make the environment. Why not in one line, if it cannot be."""
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ |= dict.fromkeys(("CFLAGS", "CXXFLAGS"), WITHOUT_AMX)
    try:
        overlay.make(TARGET, LOCK)
        overlay.check(TARGET, "import llama_cpp, nnsight, transformer_lens")
    except overlay.Failed as error:
        return f"TransformerLens, nnsight and llama.cpp cannot be used here: {error}"
    return None


def lock() -> None:
    """Write requirements-bench.lock: the newest ones that go with the packages of .venv."""
    LOCK.write_text(f"{HEAD}{beside(WANTED)}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(lock() if sys.argv[1:] == ["lock"] else make())
