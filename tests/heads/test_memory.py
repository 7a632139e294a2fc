"""Detection needs hardly more memory than plain generation of the same cases."""

from __future__ import annotations

import subprocess
import sys

import pytest

PEAK = """
import resource, sys
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
from rmutils.heads import DetectConfig, detection
from rmutils.models import LanguageModel

tokenizer = PreTrainedTokenizerFast.from_pretrained(sys.argv[2])
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_config(LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=256, intermediate_size=512, num_hidden_layers=4,
    num_attention_heads=4, max_position_embeddings=4096, bos_token_id=None,
    eos_token_id=tokenizer.eos_token_id), attn_implementation="sdpa").eval()
lm = LanguageModel(model, tokenizer, "random", "llama", "random")
config = DetectConfig(lengths=(2500,), depths=[i / 7 for i in range(8)], needles=1,
                      max_new_tokens=8)
detection.SUCCESS_ROUGE = -1.0
cases = detection.build_cases(lm, config)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak()
if sys.argv[1] == "detect":
    detection.detect(lm, config)
else:
    for case in cases:
        model.generate(torch.tensor([case.input_ids]), max_new_tokens=8, min_new_tokens=8,
                       do_sample=False, pad_token_id=0)
print(before, peak())
"""


@pytest.fixture
def peak(tokenizer, tmp_path):
    """Memory before and at the peak of a process of its own."""
    tokenizer.save_pretrained(tmp_path)

    def run(what: str) -> tuple[int, int]:
        done = subprocess.run([sys.executable, "-c", PEAK, what, str(tmp_path)], text=True,
                              capture_output=True, check=True)
        return tuple(map(int, done.stdout.split()))

    return run


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measured by Linux's ru_maxrss")
def test_peak_is_that_of_generation(peak):
    """Eight long prompts, generated one by one; also without what the libraries themselves take."""
    base, detection = peak("detect")
    plain_base, generation = peak("generate")
    print(base, detection, plain_base, generation)
    assert detection <= 1.25 * generation
    assert detection - base <= 1.25 * (generation - plain_base)
