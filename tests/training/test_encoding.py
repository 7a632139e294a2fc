"""What the loss sees: the prompt as the model reads it, the answer, and its end."""

from dataclasses import replace

import pandas as pd
import pytest
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast
from trl import DPOTrainer, SFTTrainer

from rmutils.core.errors import UserError
from rmutils.training import train
from rmutils.training.encoding import check_pairs, digest_of, encode
from tests.training.conftest import quick

THINKING = (  # as Qwen3's: past thoughts are left out, and an empty one rules out others
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
NO_THOUGHT = "<think>\n\n</think>\n\n"


def with_template(lm, tokenizer, template: str, **options):
    own = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer,
                                  eos_token="<|im_end|>", chat_template=template, **options)
    return replace(lm, tokenizer=own)


@pytest.fixture
def beginning(llama, tokenizer):
    """A model whose tokenizer puts a token before each text, as Llama's does; no padding token."""
    made = with_template(llama, tokenizer, "<|endoftext|>" + tokenizer.chat_template)
    inner = made.tokenizer.backend_tokenizer
    inner.post_processor = TemplateProcessing(single="<|endoftext|> $A",
                                              special_tokens=[("<|endoftext|>", 0)])
    return made


def seen(monkeypatch, trainer, method, lm, pairs, recipe, folder) -> list[tuple[str, str]]:
    """All sequences that come to TRL's loss: text of the prompt, and of what the loss is on."""
    found = []
    original = getattr(trainer, method)

    def spy(self, model, inputs, *arguments, **options):
        assert not {"row"} & {*inputs}
        wanted = inputs["completion_mask"] if "completion_mask" in inputs else \
            inputs["labels"] == inputs["input_ids"]
        for ids, real, mask in zip(inputs["input_ids"], inputs["attention_mask"], wanted,
                                   strict=True):
            length = real.sum()
            assert real[:length].all() and not mask[length:].any()
            start = length - mask.sum()
            assert mask[start:length].all()
            found.append((lm.tokenizer.decode(ids[:start]), lm.tokenizer.decode(ids[start:length])))
        return original(self, model, inputs, *arguments, **options)

    monkeypatch.setattr(trainer, method, spy)
    train(lm, pairs, recipe, folder)
    return found


def test_dpo_sees_both_answers_to_each_prompt(beginning, pairs, tmp_path, monkeypatch):
    found = seen(monkeypatch, DPOTrainer, "_compute_loss", beginning, pairs, quick(epochs=1),
                 tmp_path / "out")
    assert sorted(found) == sorted(
        (f"<|endoftext|><|im_start|>user\n{p.prompt}<|im_end|>\n<|im_start|>assistant\n",
         f"{answer}<|im_end|>") for p in pairs.itertuples() for answer in (p.chosen, p.rejected))


def test_sft_sees_the_chosen_answer(beginning, pairs, tmp_path, monkeypatch):
    found = seen(monkeypatch, SFTTrainer, "compute_loss", beginning, pairs,
                 quick(objective="sft", epochs=1), tmp_path / "out")
    assert sorted(found) == sorted(
        (f"<|endoftext|><|im_start|>user\n{p.prompt}<|im_end|>\n<|im_start|>assistant\n",
         f"{p.chosen}<|im_end|>") for p in pairs.itertuples())


def test_thoughts_stay(llama, tokenizer):
    """Ids, so that also the way the text is split is that of a prompt and what is written after."""
    lm = with_template(llama, tokenizer, THINKING)
    pairs = pd.DataFrame({"prompt": ["Who?"], "chosen": ["<think>\nAnna, I think.\n</think>\n\nI."],
                          "rejected": ["No one."]})
    found = encode(lm, pairs, quick(thinking=True))
    plain = lm.tokenizer.encode
    assert found["prompt_ids"] == [
        plain("<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n")]
    assert found["chosen_ids"] == [plain(pairs["chosen"][0]) + plain("<|im_end|>")]
    with pytest.raises(UserError, match="row 0 of the pairs begins with a thought"):
        encode(lm, pairs, quick(thinking=False))
    with pytest.raises(UserError, match="row 1 of the pairs begins with a thought"):
        encode(lm, pd.concat([pairs.assign(chosen="I."), "\n " + pairs]), quick(thinking=False))
    unthinking = encode(lm, pairs.assign(chosen="Anna."), quick(thinking=False))
    assert lm.tokenizer.decode(unthinking["prompt_ids"][0]).endswith(f"assistant\n{NO_THOUGHT}")


def test_an_answer_ends_as_the_template_ends_those_of_the_assistant(llama, tokenizer):
    """Where turns of the user end with another token, which stops answers, too."""
    template = ("{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}<|im_end|>"
                "{% elif m.role == 'user' %}<|endoftext|>{% else %}{{ raise_exception('role') }}"
                "{% endif %}{% endfor %}")
    lm = with_template(llama, tokenizer, template)
    lm.model.generation_config.eos_token_id = lm.tokenizer.convert_tokens_to_ids(
        ["<|endoftext|>", "<|im_end|>"])
    pairs = pd.DataFrame({"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]})
    found = encode(lm, pairs, quick())
    assert lm.tokenizer.decode(found["prompt_ids"][0]) == "a<|endoftext|>"
    assert lm.tokenizer.decode(found["chosen_ids"][0]) == "b<|im_end|>"
    endless = with_template(llama, tokenizer, "{% for m in messages %}{{ m.content }}{% endfor %}")
    found = encode(endless, pairs, quick())  # the tokenizer's own
    assert lm.tokenizer.decode(found["chosen_ids"][0]) == "b<|im_end|>"


def test_a_template_that_repeats_the_answer(llama, tokenizer):
    """What follows the last of them ends it."""
    lm = with_template(llama, tokenizer, "{% for m in messages %}{{ m.content }}<|endoftext|>"
                       "{{ m.content }}<|im_end|>{% endfor %}")
    lm.model.generation_config.eos_token_id = lm.tokenizer.convert_tokens_to_ids(
        ["<|endoftext|>", "<|im_end|>"])
    pairs = pd.DataFrame({"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]})
    assert lm.tokenizer.decode(encode(lm, pairs, quick())["chosen_ids"][0]) == "b<|im_end|>"


def test_a_token_that_the_tokenizer_puts_first_does_not_end_an_answer(beginning, pairs):
    """Also where it would end one, as GPT-2's: the template's comes."""
    lm = beginning
    lm.model.generation_config.eos_token_id = lm.tokenizer.convert_tokens_to_ids(
        ["<|endoftext|>", "<|im_end|>"])
    for side in ("chosen_ids", "rejected_ids"):
        for ids in encode(lm, pairs, quick())[side]:
            assert lm.tokenizer.decode(ids).endswith("<|im_end|>")
            assert "<|endoftext|>" not in lm.tokenizer.decode(ids)


def test_what_was_cut_has_no_end(llama, pairs):
    """The others keep theirs, and pairs without a word on it are all whole."""
    whole = encode(llama, pairs, quick())
    cut = pairs.assign(chosen_finished=[False] + [True] * 7, rejected_finished=[True] * 7 + [False])
    found = encode(llama, cut, quick())
    whole["chosen_ids"][0], whole["rejected_ids"][7] = (
        whole["chosen_ids"][0][:-1], whole["rejected_ids"][7][:-1])
    assert found == whole
    assert len({digest_of(p) for p in (pairs, cut, cut.assign(chosen_finished=True))}) == 3


@pytest.mark.parametrize("finished", ["False", "no", None, float("nan"), 2])
def test_an_end_is_true_or_false(pairs, finished):
    """Each of these would count as true, and teach the model to break off."""
    cut = pairs.assign(chosen_finished=[True] * 7 + [finished])
    with pytest.raises(UserError, match="chosen_finished .* other values than true and false"):
        check_pairs(cut)
    check_pairs(pairs.assign(chosen_finished=[True] * 7 + [False]))


def test_cuts(llama):
    """By hand: the last 6 tokens of a prompt; for SFT the first 10 of prompt and answer."""
    pairs = pd.DataFrame({"prompt": ["a b c d e f"], "chosen": ["g h i j k l m"],
                          "rejected": ["n"]})
    whole = encode(llama, pairs, quick())
    prompt, chosen = whole["prompt_ids"][0], whole["chosen_ids"][0]
    assert len(prompt) > 6 and len(chosen) > 6
    short = {"max_prompt_length": 6, "max_length": 10}
    cut = encode(llama, pairs, quick(**short))
    assert cut == whole | {"prompt_ids": [prompt[-6:]]}
    sft = encode(llama, pairs, quick(objective="sft", **short))
    assert sft["input_ids"] == [prompt[-6:] + chosen[:4]]
    assert sft["labels"] == [[-100] * 6 + chosen[:4]]


@pytest.mark.parametrize(("change", "message"), [
    (lambda pairs: pairs.drop(columns="rejected"), "have no column rejected"),
    (lambda pairs: pairs.head(0), "no pairs to train on"),
    (lambda pairs: pairs.replace({"chosen": {pairs["chosen"][3]: " "}}),
     r"column chosen of the pairs has no text in 1 rows, the first ones \[3\]"),
    (lambda pairs: pairs.assign(prompt=None), "column prompt of the pairs has no text in 8 rows"),
    (lambda pairs: pairs.assign(chosen=["Yes.", "\nSo.\nNo.", "Yes.", "Well."] * 2,
                                rejected=["No.", "\nSo.\nNo.", "No.", "Well."] * 2),
     "4 of 8 pairs have the same text on both sides; the first of them begins 'So.'"),
])
def test_tables_without_pairs_are_refused(llama, pairs, change, message, tmp_path):
    with pytest.raises(UserError, match=message):
        train(llama, change(pairs), quick(), tmp_path / "out")


def test_models_without_chat_template_are_refused(llama, tokenizer, pairs):
    with pytest.raises(UserError, match="random-llama has no chat template"):
        encode(with_template(llama, tokenizer, None), pairs, quick())
