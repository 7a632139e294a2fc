"""Pairs by hand, and LongReward's, read from a folder as `hf download` makes it."""

import json
from contextlib import nullcontext
from dataclasses import replace

import datasets
import huggingface_hub.constants
import pandas as pd
import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from rmutils.core.errors import UserError
from rmutils.preference import pairs as module
from rmutils.preference.pairs import Pairs, longreward_pairs, make_pairs


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


CARD = """---
license: apache-2.0
configs:
- config_name: default
  data_files:
  - split: sft
    path: sft.jsonl
  - split: dpo_glm4_9b
    path: dpo-glm4-9b.jsonl
  - split: dpo_llama3.1_8b
    path: dpo-llama3.1-8b.jsonl
---
"""


def row(number: int, win="Yes, it is.", lose="No.", **others) -> dict:
    """As `3_get_pairs.py` writes it; in the split `sft` both responses are the word none."""
    return {"idx": number, "context": f"The river {number} is long.", "query": "Is it long?",
            "win_response": win, "lose_response": lose} | others


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the split's rows; the other splits are there, and whoever asks the hub fails."""
    monkeypatch.setenv("RMUTILS_DATASETS", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0)
    folder = tmp_path / "zai-org/LongReward-10k"

    def write(*rows):
        folder.mkdir(parents=True)
        (folder / "README.md").write_text(CARD)
        none = {key: "none" if key.endswith("_response") else value
                for key, value in rows[0].items()}
        for name, found in {"sft": [none], "dpo-glm4-9b": [none], "dpo-llama3.1-8b": rows}.items():
            (folder / f"{name}.jsonl").write_text(
                "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in found))
        return folder

    return write


def test_pairs(write, llama, monkeypatch):
    """Prompts are context, empty line, query; what teaches nothing is dropped and counted."""
    write(row(0), row(1, win="是的。"), row(2, lose="Yes, it is."), row(3, lose=" "),
          row(4, win=None), row(5, win="Ask NAME_1."), row(0, win="Again."), row(0, win="Again."),
          row(6, query=""), row(7, context=None))
    told = []
    monkeypatch.setattr(module, "progress_bar", lambda *what, unit: nullcontext(told.append))
    pairs = longreward_pairs(llama)
    assert told == [1] * 10
    assert pairs.dropped == {"equal": 1, "empty": 4, "redacted": 1, "duplicate": 2}
    table = pairs.table.set_index("prompt").sort_index()
    assert table.index.tolist() == [f"The river {n} is long.\n\nIs it long?" for n in (0, 1)]
    assert table["chosen"].iloc[0] in ("Yes, it is.", "Again.")
    assert table["chosen"].iloc[1] == "是的。" and (table["rejected"] == "No.").all()
    for side in ("chosen", "rejected"):
        assert table[f"{side}_tokens"].tolist() == [
            len(llama.tokenizer(text, add_special_tokens=False)["input_ids"])
            for text in table[side]]


def test_tokens_that_the_tokenizer_adds_do_not_count(write, llama):
    """As Llama's, which puts one before each text."""
    write(row(0), row(1, win="It is not short."))
    plain = longreward_pairs(llama).table
    inner = Tokenizer.from_str(llama.tokenizer.backend_tokenizer.to_str())
    inner.post_processor = TemplateProcessing(single="<|endoftext|> $A",
                                              special_tokens=[("<|endoftext|>", 0)])
    adding = replace(llama, tokenizer=PreTrainedTokenizerFast(tokenizer_object=inner))
    assert len(adding.tokenizer("a")["input_ids"]) == len(llama.tokenizer("a")["input_ids"]) + 1
    pd.testing.assert_frame_equal(longreward_pairs(adding).table, plain)


def test_draws(write, llama):
    """The same seed draws the same rows; there may be fewer than are wanted."""
    write(*map(row, range(40)))
    some, same, other = (longreward_pairs(llama, 10, seed=seed).table for seed in (1, 1, 2))
    assert some.equals(same) and len(some) == 10
    assert longreward_pairs(llama, 10).table.equals(longreward_pairs(llama, 10, seed=0).table)
    assert some["chosen_finished"].all() and some["rejected_finished"].all()
    assert set(some["prompt"]) != set(other["prompt"])
    assert len(longreward_pairs(llama, 100).table) == 40


def test_other_columns_are_refused(write, llama):
    write({"prompt": "Is it long?", "chosen": "Yes.", "rejected": "No."})
    with pytest.raises(UserError, match="LongReward-10k could not be read: no column 'context'. "
                                        "Or choose another strategy"):
        longreward_pairs(llama)


def test_folder_without_the_split(write, llama):
    folder = write(row(0))
    (folder / "README.md").unlink()
    with pytest.raises(UserError, match="LongReward-10k could not be read: .*dpo_llama3.1_8b"):
        longreward_pairs(llama)


def test_no_usable_row(write, llama):
    write(row(0, query=""))
    with pytest.raises(UserError, match="LongReward-10k has no usable row"):
        longreward_pairs(llama)


def test_no_copy_and_no_network(write, llama):
    with pytest.raises(UserError, match="zai-org/LongReward-10k cannot be reached.*`hf download zai"
                                        "-org/LongReward-10k .*Or choose another strategy"):
        longreward_pairs(llama)
