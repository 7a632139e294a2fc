"""Make .venv-bench, where TransformerLens and nnsight are, for `python -m benchmarks detection`.

It is laid over .venv: torch and transformers are those of .venv, so that all ways are compared with
the same versions. With `lock`: pin it anew.
"""

from __future__ import annotations

import sys

import overlay
from lock import beside

TARGET, LOCK = overlay.ROOT / ".venv-bench", overlay.ROOT / "requirements-bench.lock"
WANTED = ["transformer-lens", "nnsight"]
HEAD = """\
# What .venv-bench has beside the packages of requirements.lock, made by `python .ci/bench.py lock`.
"""


def make() -> str | None:
    """Make the environment. Why not in one line, if it cannot be."""
    try:
        overlay.make(TARGET, LOCK)
        overlay.check(TARGET, "import nnsight, transformer_lens")
    except overlay.Failed as error:
        return f"TransformerLens and nnsight cannot be used here: {error}"
    return None


def lock() -> None:
    """Write requirements-bench.lock: the newest ones that go with the packages of .venv."""
    LOCK.write_text(f"{HEAD}{beside(WANTED)}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(lock() if sys.argv[1:] == ["lock"] else make())
