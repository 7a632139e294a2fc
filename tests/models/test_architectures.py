"""Architectures: what other builds than Llama's give is what transformers' own eager attention
gives; what cannot be examined is refused by every command, in the words of the page."""

import json

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV2Config,
    DeepseekV3Config,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    MambaConfig,
)
from typer.testing import CliRunner

from rmutils import load_model, mask_heads
from rmutils.__main__ import app
from rmutils.attention.ms_poe import MsPoe
from rmutils.core.errors import UserError
from rmutils.core.paths import ROOT
from rmutils.heads import detection
from rmutils.models.engine.generation import generate
from rmutils.models.families import EXAMINED
from tests.attention.test_capture import answered, looked_hardest

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 1024, "initializer_range": 0.3}
MLA = {**SIZES, "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
       "qk_nope_head_dim": 8, "v_head_dim": 12, "moe_intermediate_size": 16, "n_routed_experts": 4,
       "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
       "first_k_dense_replace": 1}
EXAMINABLE = {
    "deepseek_v2": (DeepseekV2Config, MLA | {"q_lora_rank": None, "topk_method": "greedy"}),
    "deepseek_v3": (DeepseekV3Config, MLA | {"q_lora_rank": 24}),
    "gpt_oss": (GptOssConfig, SIZES | {
        "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
        "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"],
        "rope_scaling": {"rope_type": "default", "rope_theta": 10000.0}}),
}
REFUSED = {
    "gpt2": (GPT2Config, {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "gpt_neox": (GPTNeoXConfig, SIZES),
    "mamba": (MambaConfig, {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
}
COMMANDS = {
    "detect": ["--lengths", "200", "--depths", "0.5", "--needles", "1", "--max-new-tokens", "4"],
    "mask": ["--scores", "scores.json", "--top-k", "1", "--out", "masked"],
    "evaluate": ["--datasets", "labels_coarse", "--lengths", "300", "--samples", "1"],
    "generate": ["--count", "1", "--max-new-tokens", "3", "--workers", "1"],
    "report": ["--lengths", "200", "--depths", "0.5", "--needles", "1", "--counts", "1",
               "--draws", "1", "--samples", "1"],
    "merge": ["whole"],
}


@pytest.fixture
def folder(request, cache, tokenizer, tmp_path, monkeypatch):
    """A saved model with random weights."""
    torch.manual_seed(0)
    kind, sizes = (EXAMINABLE | REFUSED)[request.param]
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id,
           "pad_token_id": tokenizer.pad_token_id}
    model = AutoModelForCausalLM.from_config(kind(vocab_size=len(tokenizer), **sizes, **ids))
    for name, weights in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.constant_(weights, 3.0)  # most of what a head sees
    model.save_pretrained(tmp_path / request.param)
    tokenizer.save_pretrained(tmp_path / request.param)
    (tmp_path / "scores.json").write_text(json.dumps(
        {f"{i}-{j}": [0.1 * i] for i in range(2) for j in range(4)}))
    monkeypatch.setattr(detection, "SUCCESS_ROUGE", -1.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path / request.param


@pytest.mark.parametrize("folder", EXAMINABLE, indirect=True)
def test_heads_are_watched_masked_and_read_as_by_transformers(folder):
    """Arg-max of the weights and greedy answers; masked heads write zeros, masked queries look
    everywhere alike."""
    lm = load_model(folder, device="cpu")
    plain = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = [case.input_ids for case, *_ in answered(lm)]
    for case, answer, _ in answered(lm):
        greedy = plain.generate(torch.tensor([case.input_ids]), max_new_tokens=6, do_sample=False)
        assert greedy[0, len(case.input_ids):][: len(answer.tokens)].tolist() == [*answer.tokens]
        lm.model.set_attn_implementation("eager")
        assert (answer.positions == looked_hardest(lm, case, answer)).mean() > 0.99  # ties
    lm = load_model(folder, device="cpu")
    said = {}
    generate(lm, prompts, max_new_tokens=5, temperature=0.0,
             done=lambda index, tokens: said.update({index: list(tokens)}))
    for index, prompt in enumerate(prompts):
        greedy = plain.generate(torch.tensor([prompt]), max_new_tokens=5, do_sample=False)
        assert greedy[0, len(prompt):][: len(said[index])].tolist() == said[index]

    ids, kept = torch.tensor(prompts[:1])[:, :60], []
    width = plain.model.layers[1].self_attn.o_proj.in_features // 4
    with mask_heads(lm, [(1, 2)]), torch.no_grad():
        masked = lm.model(ids).logits

    def silence(module, inputs):
        inputs[0][..., 2 * width : 3 * width] = 0
        kept.append(module)

    hook = plain.model.layers[1].self_attn.o_proj.register_forward_pre_hook(silence)
    with torch.no_grad():
        torch.testing.assert_close(masked, plain(ids).logits, rtol=1e-4, atol=1e-4)
    hook.remove()
    assert kept and not torch.allclose(masked, plain(ids).logits, atol=1e-3)
    lm.model.set_attn_implementation("eager")
    with mask_heads(lm, [(1, 2)], "query"), torch.no_grad():
        row = lm.model(ids, output_attentions=True).attentions[1][0, 2, -1]
    torch.testing.assert_close(row, row[:1].expand(60))


@pytest.mark.parametrize("folder", ["gpt_oss"], indirect=True)
def test_a_variant_that_would_drop_sinks_is_refused(folder):
    with pytest.raises(UserError, match="caps its scores or has sinks"), \
            MsPoe(s_max=2, first_layer=0).attached(load_model(folder)):
        pass


@pytest.mark.parametrize(("folder", "command"), [
    (kind, command) for kind in ("gpt_oss", "deepseek_v2") for command in COMMANDS
    if (kind, command) != ("deepseek_v2", "report")], indirect=["folder"])
def test_commands_take_them(folder, command):
    done = CliRunner().invoke(app, [command, folder.name, *COMMANDS[command]])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("folder", REFUSED, indirect=True)
def test_every_command_refuses_the_others_in_one_sentence(folder):
    for command, words in COMMANDS.items():
        done = CliRunner().invoke(app, [command, folder.name, *words])
        assert done.exit_code == 2 and isinstance(done.exception, SystemExit), (command, done)
        assert done.stderr == (
            f"rmutils: {folder.name} is of the family {folder.name}, which lacks an attention with "
            f"an output projection `o_proj` in every layer. {EXAMINED}\n")


def test_pages_on_other_models_say_the_same():
    page = (ROOT / "notebooks" / "your_own_model.ipynb").read_text(encoding="utf-8")
    assert "examined=EXAMINED" in page
    families = EXAMINED[EXAMINED.index("as in Llama"):EXAMINED.index(", as Qwen3-Next")]
    assert families in (ROOT / "book" / "quickstart.md").read_text(encoding="utf-8")
