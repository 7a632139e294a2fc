"""GGUF files: each tensor and each setting is applied, or refused by its name."""

import math
import struct

import gguf
import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from rmutils import load_model
from rmutils.core.errors import UserError
from rmutils.corpora.niah import NiahBuilder, load_haystacks, load_needles
from rmutils.models import gguf_file
from rmutils.models.engine.generation import next_token_logits
from rmutils.models.language_model import LanguageModel
from tests.models.gguf_files import tensors_of, write_gguf

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
         "initializer_range": 0.3, "bos_token_id": None, "pad_token_id": None}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
WINDOW = {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16}
EACH = {
    "llama": {"rope_theta": 5000.0}, "qwen2": {"rope_theta": 1e6}, "qwen3": {"head_dim": 16},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 24},
    "qwen3_moe": {**EXPERTS, "head_dim": 16, "norm_topk_prob": True},
    "gemma2": WINDOW | {"num_hidden_layers": 4}, "gemma3_text": WINDOW | {"num_hidden_layers": 7},
    "phi3": {"sliding_window": 8, "eos_token_id": 2}}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        "rope_theta": 5000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 5000.0}


def make(kind, tokenizer, **settings) -> LanguageModel:
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**{
        "vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, **SIZES,
        **EACH[kind], **settings})
    attend = "eager" if kind == "gemma2" else "sdpa"
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attend).eval()
    for name, weights in model.named_parameters():  # norms of ones would hide how they are stored
        if name.endswith(("norm.weight", "bias")):
            torch.nn.init.uniform_(weights, 0.2, 0.9)
    return LanguageModel(model, tokenizer, kind, kind, kind)


def logits(lm):
    return next_token_logits(lm, list(range(20, 120, 2)))


@pytest.fixture
def llama(tokenizer):
    return make("llama", tokenizer)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "small.gguf"


@pytest.mark.parametrize(("kind", "tied"), [
    (kind, tied) for kind in EACH for tied in (True, False) if tied or kind != "gemma2"])
def test_a_file_computes_what_its_weights_do(kind, tied, tokenizer, path):
    lm = make(kind, tokenizer, tie_word_embeddings=tied)
    loaded = load_model(write_gguf(lm, path))
    torch.testing.assert_close(logits(loaded), logits(lm), rtol=1e-4, atol=1e-4)
    assert loaded.family == kind and loaded.stop_ids == {tokenizer.eos_token_id}


def divisors(rope):
    """As llama.cpp's converter computes them for Llama 3.1, one angle after the other."""
    found = []
    for i in range(0, 8, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / 8)
        turns = rope["original_max_position_embeddings"] / wavelength
        if turns > rope["high_freq_factor"]:
            found.append(1.0)
        elif turns < rope["low_freq_factor"]:
            found.append(rope["factor"])
        else:
            share = (turns - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"])
            found.append(1 / ((1 - share) / rope["factor"] + share))
    return np.array(found)


@pytest.mark.parametrize(("rope", "said", "tensors"), [
    (LINEAR, {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, {}),
    (LINEAR, {"llama.rope.scaling.factor": 4.0}, {}),
    (LINEAR, {"llama.rope.scale_linear": 4.0}, {}),
    (YARN, {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 64}, {}),
    (YARN | {"beta_fast": 16.0, "beta_slow": 2.0}, {
        "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 64,
        "llama.rope.scaling.yarn_beta_fast": 16.0, "llama.rope.scaling.yarn_beta_slow": 2.0}, {}),
    (LLAMA3, {}, {"rope_freqs.weight": divisors(LLAMA3)}),
], ids=["linear", "no type", "old key", "yarn", "yarn of its own", "llama3"])
def test_extended_positions_are_applied(rope, said, tensors, tokenizer, path):
    lm = make("llama", tokenizer, rope_parameters=rope)
    plain = make("llama", tokenizer)
    loaded = load_model(write_gguf(lm, path, said, tensors))
    torch.testing.assert_close(logits(loaded), logits(lm), rtol=1e-3, atol=1e-3)
    assert (logits(plain) - logits(lm)).abs().max() > 0.1


def test_two_sets_of_divisors_are_applied(tokenizer, path):
    """Phi-3: short texts by the short ones; longer ones are refused, as from a folder."""
    short, long = [1.0, 1.5, 2.0, 3.0], [2.0, 4.0, 8.0, 16.0]
    lm = make("phi3", tokenizer, original_max_position_embeddings=64, rope_parameters={
        "rope_type": "longrope", "short_factor": short, "long_factor": long,
        "rope_theta": 10000.0, "attention_factor": 1.25})
    loaded = load_model(write_gguf(lm, path, {
        "phi3.rope.scaling.original_context_length": 64, "phi3.rope.scaling.attn_factor": 1.25},
        {"rope_factors_short.weight": np.array(short), "rope_factors_long.weight": np.array(long)}))
    torch.testing.assert_close(logits(loaded), logits(lm), rtol=1e-3, atol=1e-3)
    assert loaded.window == 64
    with pytest.raises(UserError, match="beyond 64 tokens"):
        next_token_logits(loaded, [5] * 65)


def test_a_window_of_its_own_for_each_layer(tokenizer, path):
    kinds = ["full_attention", "sliding_attention"] * 3 + ["full_attention"]
    lm = make("gemma3_text", tokenizer, layer_types=kinds, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})
    loaded = load_model(write_gguf(lm, path, {
        "gemma3.attention.sliding_window_pattern": [kind != "full_attention" for kind in kinds],
        "gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0,
        "gemma3.rope.freq_base_swa": 2e4}))
    assert loaded.model.config.layer_types == kinds
    torch.testing.assert_close(logits(loaded), logits(lm), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("change", "named"), [
    ({"blk.1.attn_q.weight": None, "blk.1.other.weight": np.ones((32, 32))}, "blk.1.attn_q"),
    ({"blk.1.attn_q.bias": np.ones(32)}, "belong nowhere in a llama, as blk.1.attn_q.bias"),
    ({"blk.1.ffn_up.weight": np.ones((32, 64))}, "blk.1.ffn_up.weight has the shape"),
    ({"blk.1.attn_norm.weight": np.ones(16)}, "blk.1.attn_norm.weight has the shape"),
    ({"rope_freqs.weight": np.ones(3)}, "are 3, and its heads turn 4 pairs"),
    ({"rope_freqs.weight": np.ones(4), "rope_factors_long.weight": np.ones(4)}, "do not go with"),
    ({"rope_factors_short.weight": np.ones(4)}, "do not go with its other settings"),
    ({"rope_freqs.weight": np.zeros(4)}, "other angles"),
    ({"output_norm.weight": np.array([1.0] * 31 + [np.nan])}, "model.norm.weight holds NaN or inf"),
], ids=["renamed", "surplus", "transposed", "short", "angles", "both", "half", "zeros", "NaN"])
def test_tensors_that_do_not_fit_are_refused(change, named, llama, path):
    with pytest.raises(UserError, match=named) as error:
        load_model(write_gguf(llama, path, tensors=change))
    assert "damaged" not in str(error.value)


def test_a_file_without_tensors_is_refused(llama, path):
    with pytest.raises(UserError, match="tensors are missing"):
        load_model(write_gguf(llama, path, tensors=dict.fromkeys(tensors_of(llama))))


@pytest.mark.parametrize(("change", "named"), [
    ({"llama.attention.head_count": 1}, "1 query heads cannot share 2 key heads"),
    ({"llama.attention.head_count": 3}, "3 query heads"),
    ({"llama.attention.head_count": 0}, "num_attention_heads|query heads"),
    ({"llama.attention.head_count_kv": 1}, "attn_k.weight has the shape"),
    ({"llama.attention.head_count_kv": [2, 1]}, "differs between layers"),
    ({"llama.attention.key_length": 16, "llama.attention.value_length": 16}, "has the shape"),
    ({"llama.attention.value_length": 4}, "values have another size"),
    ({"llama.rope.dimension_count": 3}, "turns 3 dimensions"),
    ({"llama.rope.dimension_count": 4}, "a llama turns whole heads"),
    ({"llama.rope.freq_base": math.nan}, "llama.rope.freq_base is nan"),
    ({"llama.rope.freq_base": -1.0}, "other angles"),
    ({"llama.rope.scaling.type": "su"}, "way that is not known here"),
    ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": 0.5}, "not known"),
    ({"llama.rope.scaling.type": "longrope"}, "factors of rotary positions are missing"),
    ({"llama.rope.scaling.alpha": 1000.0}, "llama.rope.scaling.alpha"),
    ({"llama.attention.scale": 0.1}, "attention.scale"),
    ({"llama.attention.sliding_window": 64}, "llama.attention.sliding_window"),
    ({"llama.logit_scale": 0.5}, "llama.logit_scale"),
    ({"llama.expert_count": 4}, "llama.expert_count"),
    ({"llama.whatever": 4}, "llama.whatever"),
    ({"adapter.type": "lora"}, "adapter.type"),
    ({"llama.block_count": 2**31}, "num_hidden_layers is 2147483648, which no model has"),
    ({"llama.block_count": 3}, "tensors are missing, as blk.2"),
    ({"llama.block_count": "two"}, "block_count"),
    ({"llama.block_count": None}, "does not say llama.block_count"),
    ({"llama.attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon"),
    ({"tokenizer.ggml.tokens": None}, "no vocabulary"),
    ({"tokenizer.ggml.tokens": ["a", "b"]}, "vocabulary has 2 tokens"),
    ({"tokenizer.ggml.model": "plamo"}, "plamo"),
    ({"tokenizer.ggml.merges": None}, "no merges"),
    ({"tokenizer.ggml.eos_token_id": 999999}, "tokenizer.ggml.eos_token_id is 999999, and its"),
    ({"llama.context_length": 0}, "max_position_embeddings is 0, which no model has"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_settings_that_are_not_applied_are_refused(change, named, llama, path):
    """What is refused is named, in one sentence."""
    with pytest.raises(UserError, match=named) as error:
        load_model(write_gguf(llama, path, change))
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("change", [
    {"llama.attention.scale": 8**-0.5}, {"llama.logit_scale": 1.0}, {"llama.expert_count": 0},
    {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 8.0},
    {"general.tags": ["small", "new"]}, {"quantize.imatrix.entries_count": 4},
    {"llama.attention.head_count_kv": [2, 2]}, {"llama.rope.freq_base": None}])
def test_settings_that_change_nothing_are_taken(change, tokenizer, path):
    lm = make("llama", tokenizer, rope_theta=1e4 if "llama.rope.freq_base" in change else 5000.0)
    loaded = load_model(write_gguf(lm, path, change))
    torch.testing.assert_close(logits(loaded), logits(lm), rtol=1e-4, atol=1e-4)


def test_another_architecture_is_refused(llama, path):
    whole = write_gguf(llama, path).read_bytes()
    path.write_bytes(whole.replace(b"llama", b"mamba"))
    with pytest.raises(UserError, match="architecture is 'mamba'"):
        load_model(path)


def nested(depth: int) -> bytes:
    """A file of one entry: arrays of one array, so many deep."""
    inner = struct.pack("<IQ", 9, 1) * depth
    return (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"x"
            + struct.pack("<I", 9) + inner)


@pytest.mark.fault("foreign file", "a GGUF file cut short, of nested or endless arrays")
def test_damaged_files_are_refused(llama, path, tally):
    whole = write_gguf(llama, path).read_bytes()
    head = whole.index(b"token_embd")
    endless = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"x"
    for damaged in (
            b"", b"GGUF", whole[:300], whole[:head], whole[:-1], b"GGUFxxxx", nested(100_000),
            b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), b"GGUF" + struct.pack("<IQQ", 9, 0, 0),
            endless + struct.pack("<IIQ", 9, 8, 2**62), endless + struct.pack("<IIQ", 9, 0, 2**62),
            endless + struct.pack("<I", 99), whole.replace(b"blk.1.attn_q", b"blk.0.attn_q")):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="could not be loaded"):
            load_model(path)
        tally()


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "Q5_0", "F16", "BF16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_is_unpacked_as_by_gguf(kind, dtype, path):
    """In parts, each element as gguf itself unpacks the whole; rounded once."""
    kind = gguf.GGMLQuantizationType[kind]
    values = np.random.default_rng(0).normal(size=(700, 128)).astype(np.float32)
    packed = np.ascontiguousarray(gguf.quants.quantize(values, kind)).view(np.uint8)
    path.write_bytes(b"before" + packed.tobytes())
    tensor = gguf_file.PackedTensor("x", values.shape, kind, path, 6, packed.shape[-1])
    whole = torch.from_numpy(np.array(gguf.quants.dequantize(packed, kind)))
    assert torch.equal(tensor.values(dtype), whole.to(dtype))


@pytest.mark.parametrize("begins", [True, False])
def test_texts_begin_as_the_file_says(tokenizer, path, begins):
    """transformers drops this; Gemma, which has always seen that token, writes nonsense then."""
    made = make("llama", tokenizer, max_position_embeddings=1024)
    lm = load_model(write_gguf(made, path, {"tokenizer.ggml.add_bos_token": begins}))
    first = lm.tokenizer.convert_tokens_to_ids("<|im_start|>")
    case = NiahBuilder(lm, load_haystacks()).build(0, load_needles()[0], 300, 0.5)
    assert not lm.chat and case.input_ids.count(first) == begins
    assert (case.input_ids[0] == first) == begins
    answer = lm.tokenizer.decode(case.input_ids[slice(*case.needle_span)])
    assert case.needle.real_needle in answer
