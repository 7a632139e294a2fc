"""Pairs by hand: who stands beside whom, and what is left out."""

import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.preference.pairs import Pairs, make_pairs


def side(*rows) -> pd.DataFrame:
    """Responses from (id, text, tokens)."""
    return pd.DataFrame([{"id": i, "instruction": f"Do {i}.", "text": text, "tokens": tokens,
                          "finished": tokens < 4096} for i, text, tokens in rows])


def test_pairs_by_hand():
    chosen = side(("a", "Yes.", 2), ("b", "No.", 2), ("c", "Ask NAME_1.", 5), ("d", "Good.", 3),
                  ("e", "La la", 4096), ("f", " ", 1), ("g", "", 0))
    rejected = side(("b", "No.", 2), ("a", "Well.", 4), ("c", "Ask him.", 4), ("d", "\n", 1),
                    ("e", "La", 1), ("f", "x", 1), ("g", "", 0))
    pairs = make_pairs(chosen, rejected)
    assert pairs.table.to_dict("records") == [
        {"id": "a", "prompt": "Do a.", "chosen": "Yes.", "rejected": "Well.", "chosen_tokens": 2,
         "rejected_tokens": 4, "chosen_finished": True, "rejected_finished": True, "long": False},
        {"id": "e", "prompt": "Do e.", "chosen": "La la", "rejected": "La", "chosen_tokens": 4096,
         "rejected_tokens": 1, "chosen_finished": False, "rejected_finished": True, "long": True}]
    assert pairs.dropped == {"equal": 1, "redacted": 1, "empty": 3}
    assert repr(Pairs(pairs.table, {"equal": 1, "empty": 3})) == (
        "Pairs(2, left out: 1 equal, 3 empty)")
    assert repr(Pairs(pairs.table, {})) == "Pairs(2)"


def test_more_than_two_thousand_tokens_are_flagged_as_long():
    """On either side; as in the authors' scripts, which flag `> 2000`."""
    pairs = make_pairs(side(("a", "x", 2000), ("b", "x", 2001), ("c", "x", 1)),
                       side(("a", "y", 2000), ("b", "y", 1), ("c", "y", 2001)))
    assert pairs.table["long"].tolist() == [False, True, True]


def test_other_instructions_are_refused():
    with pytest.raises(UserError, match="different instructions: 2 are on one side only"):
        make_pairs(side(("a", "x", 1), ("b", "y", 1)), side(("a", "z", 1), ("c", "y", 1)))


def test_nothing_left():
    with pytest.raises(UserError, match=r"none of 1 pairs is left \({'equal': 1}\)"):
        make_pairs(side(("a", "x", 1)), side(("a", "x", 1)))
