"""Conversational pairs, against what TRL makes of them."""

import pandas as pd
import pytest
from trl.data_utils import maybe_extract_prompt

from rmutils.core.errors import UserError
from rmutils.training import train
from rmutils.training.conversations import without_conversations
from rmutils.training.encoding import digest_of, encode
from tests.training.conftest import quick


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def apart(pairs):
    """The form of TRL with a prompt of its own."""
    return pd.DataFrame([{
        "prompt": [said("user", pair.prompt)], "chosen": [said("assistant", pair.chosen)],
        "rejected": [said("assistant", pair.rejected)]} for pair in pairs.itertuples()])


def whole(pairs, prompt=False):
    """The form with whole conversations on both sides; some data sets have the prompt besides."""
    sides = {side: [[said("user", pair.prompt), said("assistant", getattr(pair, side))]
                    for pair in pairs.itertuples()] for side in ("chosen", "rejected")}
    return pd.DataFrame(sides | ({"prompt": pairs["prompt"]} if prompt else {}))


def from_file(pairs, folder):
    pairs.to_parquet(folder / "pairs.parquet")
    return pd.read_parquet(folder / "pairs.parquet")


@pytest.mark.parametrize("form", [apart, whole, lambda pairs: whole(pairs, prompt=True)])
def test_one_turn_is_the_pair_of_its_texts(form, pairs, tmp_path):
    columns = ["prompt", "chosen", "rejected"]
    for given in (form(pairs), from_file(form(pairs), tmp_path)):
        found = without_conversations(given)
        pd.testing.assert_frame_equal(found[columns], pairs[columns], check_dtype=False)
        assert digest_of(found) == digest_of(pairs), "the training is the same"
    assert without_conversations(pairs) is pairs


def test_longer_conversations_are_written_as_trl_writes_them(llama, tmp_path):
    talk = [said("system", "Be brief."), said("user", "Hi."), said("assistant", "Hello."),
            said("user", "Where is the key now?")]
    rows = [{"prompt": talk, "chosen": [said("assistant", "In the jar.")],
             "rejected": [said("assistant", "No.")]},
            {"prompt": talk[1:2], "chosen": [said("assistant", "Hello, you.")],
             "rejected": [said("assistant", "What?")]}]
    given = pd.DataFrame(rows)
    joined = pd.DataFrame([{side: row["prompt"] + row[side] for side in ("chosen", "rejected")}
                           for row in rows])
    template = llama.tokenizer.apply_chat_template
    for table in (given, joined, from_file(given, tmp_path), from_file(joined, tmp_path)):
        found = encode(llama, without_conversations(table), quick())
        for i, row in enumerate(map(maybe_extract_prompt, joined.to_dict("records"))):
            prompt = template(row["prompt"], add_generation_prompt=True, return_dict=False)
            assert found["prompt_ids"][i] == prompt
            for side in ("chosen", "rejected"):
                both = template(row["prompt"] + row[side], return_dict=False)
                after = llama.tokenizer.encode("\n")  # of the template, behind the end of a turn
                assert [*prompt, *found[f"{side}_ids"][i], *after] == both
    again = without_conversations(from_file(without_conversations(given), tmp_path))
    assert digest_of(again) == digest_of(without_conversations(given)), "in a worker process"
    train(llama, given, quick(max_steps=1), tmp_path / "trained")


@pytest.mark.parametrize("change, message", [
    ({"chosen": "In the jar."}, "row 1 of the pairs: one side is a list of messages and the other"),
    ({"chosen": [said("assistant", "a"), said("user", "b"), said("assistant", "c")]},
     "row 1 of the pairs: chosen has to add one message of the assistant to the prompt"),
    ({"rejected": [said("user", "In the jar.")]}, "row 1 .* rejected has to add one message"),
    ({"prompt": [said("user", "a"), said("assistant", "b")]}, "prompt has to end with a message"),
    ({"prompt": None}, "row 1 of the pairs: the prompt has to end with"),
    ({"prompt": "Hm?", "chosen": [said("user", "Hi."), said("assistant", "a")],
      "rejected": [said("user", "Hi."), said("assistant", "b")]}, "another text than the messages"),
    ({"prompt": None, "chosen": [said("user", "Hi."), said("assistant", "a")],
      "rejected": [said("user", "Ho."), said("assistant", "b")]}, "differ before their last"),
    ({"chosen": [said("assistant", "a", tool_calls=[{"name": "look"}])]},
     "message of chosen has content, role, tool_calls: only role and content"),
    ({"prompt": [said("user", [{"type": "text", "text": "Hi."}])]}, "both texts, can be trained"),
    ({"prompt": [said("critic", "Hi.")]}, "message of prompt has the role 'critic', not one of"),
    ({"chosen": [said("assistant", " ")]}, "column chosen of the pairs has no text in 1 rows"),
])
def test_what_cannot_be_trained_on_is_refused(llama, pairs, change, message, tmp_path):
    given = apart(pairs)
    given.loc[1] = pd.Series({**given.loc[1], **change})
    with pytest.raises(UserError, match=message):
        train(llama, given, quick(), tmp_path / "out")
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").glob("*.safetensors"))
