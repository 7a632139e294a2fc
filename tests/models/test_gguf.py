"""What a GGUF file says of its tokenizer is kept, and it is read once."""

import json

import gguf
import numpy as np
import pytest
from gguf import GGUFWriter

from rmutils import load_model
from rmutils.core.errors import UserError
from rmutils.corpora.niah import NiahBuilder, load_haystacks, load_needles

NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "mlp.up_proj": "ffn_up",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}


def write(lm, path, begins: bool) -> None:
    """A small random Llama as GGUF; `begins`: texts begin with a token of their own."""
    config = lm.model.config
    file = GGUFWriter(path, "llama")
    file.add_block_count(config.num_hidden_layers)
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_vocab_size(config.vocab_size)
    tokens = lm.tokenizer.convert_ids_to_tokens(range(len(lm.tokenizer)))
    inner = json.loads(lm.tokenizer.backend_tokenizer.to_str())["model"]
    file.add_tokenizer_model("gpt2")
    file.add_token_list(tokens)
    file.add_token_merges([" ".join(pair) for pair in inner["merges"]])
    file.add_token_types([gguf.TokenType.CONTROL if token.startswith("<|") else
                          gguf.TokenType.NORMAL for token in tokens])
    file.add_bos_token_id(lm.tokenizer.convert_tokens_to_ids("<|im_start|>"))
    file.add_eos_token_id(lm.tokenizer.eos_token_id)
    file.add_add_bos_token(begins)
    for name, weight in lm.model.model.state_dict().items():
        _, layer, part = ("", "", name) if not name.startswith("layers.") else name.split(".", 2)
        kind = NAMES[part.removesuffix(".weight")]
        file.add_tensor(f"blk.{layer}.{kind}.weight" if layer else f"{kind}.weight",
                        weight.numpy())
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


@pytest.mark.parametrize("begins", [True, False])
def test_texts_begin_as_the_file_says(llama, tmp_path, begins):
    """transformers drops this; Gemma, which has always seen that token, writes nonsense then."""
    write(llama, tmp_path / "small.gguf", begins)
    lm = load_model(str(tmp_path / "small.gguf"))
    first = lm.tokenizer.convert_tokens_to_ids("<|im_start|>")
    case = NiahBuilder(lm, load_haystacks()).build(0, load_needles()[0], 300, 0.5)
    assert not lm.chat and case.input_ids.count(first) == begins
    assert (case.input_ids[0] == first) == begins
    answer = lm.tokenizer.decode(case.input_ids[slice(*case.needle_span)])
    assert case.needle.real_needle in answer


@pytest.mark.fault("foreign file", "a GGUF file with two thousand million layers")
def test_layers_that_no_model_has(llama, tmp_path, monkeypatch):
    monkeypatch.setattr(GGUFWriter, "add_block_count", lambda self, count: self.add_uint32(
        "llama.block_count", 2**31))
    write(llama, tmp_path / "small.gguf", True)
    with pytest.raises(UserError, match="num_hidden_layers is 2147483648, which no model has"):
        load_model(str(tmp_path / "small.gguf"))


def test_a_file_is_read_once(llama, tmp_path, monkeypatch):
    """Through plain arrays; and gguf is afterwards as it was, also where the file is none."""
    read = []

    class Reader(gguf.GGUFReader):
        def __init__(self, *args):
            read.append(self)
            super().__init__(*args)

    monkeypatch.setattr(gguf, "GGUFReader", Reader)
    write(llama, tmp_path / "small.gguf", True)
    (tmp_path / "none.gguf").write_bytes(b"GGUFxxxx")
    load_model(str(tmp_path / "small.gguf"))
    assert [type(reader.data) for reader in read] == [np.ndarray]
    with pytest.raises(UserError, match="could not be loaded"):
        load_model(str(tmp_path / "none.gguf"))
    assert gguf.GGUFReader is Reader
