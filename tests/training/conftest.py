"""Eight pairs, and a recipe of four steps: two batches of four pairs, read twice."""

import pandas as pd
import pytest

from rmutils.training import TrainRecipe

NAMES = "Anna Bertil Cem Dora Emil Frida Gustav Hanna".split()


def quick(**changes) -> TrainRecipe:
    return TrainRecipe(**{
        "batch": 4, "per_device_batch": 2, "learning_rate": 1e-3, "min_learning_rate": 1e-4,
        "precision": "float32", "gradient_checkpointing": False, "checkpoint_steps": 2, **changes})


def eight_pairs() -> pd.DataFrame:
    return pd.DataFrame([{
        "prompt": f"Who hid {n} keys" + " under the old bridge" * (n % 3) + "?",
        "chosen": f"{name} hid {n} keys" + ", as all know" * (n % 4) + ".",
        "rejected": "Nobody" + " at all" * (n % 5) + ".",
    } for n, name in enumerate(NAMES)])


@pytest.fixture
def pairs() -> pd.DataFrame:
    return eight_pairs()
