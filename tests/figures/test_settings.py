"""Settings by hand, and against the numbers transcribed from the paper."""

import pytest

from rmutils.book.figures.report import settings
from rmutils.core.config import Config
from rmutils.paper import load_text_numbers
from rmutils.training import RECIPES


class Example(Config):
    """Some of each kind."""

    rate: float = 5e-7
    """Appendix A: "from 0 to 5e-7", and the authors' script
    agrees."""
    lengths: tuple[int, ...] = tuple(range(20))
    """Section 4.1: "20 different context lengths"."""
    beta: float | None = None
    """Equation 5 has it; TRL's `default`."""
    tokens: int = 50
    """50 in `script.py`."""
    size: tuple[float, ...] = ()
    """Ours, as in section 3. We say: "small"."""
    bare: bool = True


def test_by_hand():
    table = settings(one=Example(), two=Example(rate=1.0, size=(0.5, 1.0)))
    assert list(table) == ["setting", "one", "two", "set_by", "words"]
    rows = [list(row[:-1]) for row in table.itertuples(index=False)]
    assert rows == [
        ["rate", "5e-07", "1", "paper"], ["lengths", *["0, 1, 2, ..., 19"] * 2, "paper"],
        ["beta", "–", "–", "authors' code"], ["tokens", "50", "50", "authors' code"],
        ["size", "–", "0.5, 1", "–"], ["bare", "True", "True", "–"]]
    assert table["words"][0] == 'Appendix A: "from 0 to 5e-7", and the authors\' script agrees.'
    assert table["words"][5] == ""


def test_what_is_said_to_be_the_papers_is():
    """Every number of the recipe that the transcription of appendix A has, and no other."""
    numbers = load_text_numbers().query("place == 'Appendix A'").set_index("column")
    recipe = RECIPES["paper"]
    printed = {
        "learning_rate": ("highest learning rate", recipe.learning_rate),
        "min_learning_rate": ("lowest learning rate", recipe.min_learning_rate),
        "weight_decay": ("weight decay", recipe.weight_decay),
        "batch": ("global batch", recipe.batch), "warmup": ("warm-up", 100 * recipe.warmup),
        "betas": ("AdamW beta 2", recipe.betas[1]), "first beta": ("AdamW beta 1", recipe.betas[0])}
    for name, value in printed.values():
        assert numbers["value"][name] == pytest.approx(value), name
    table = settings(paper=recipe)
    said = set(table.loc[table["set_by"] == "paper", "setting"])
    assert said == {*printed} - {"first beta"} | {"objective", "thinking"}  # these are no numbers
