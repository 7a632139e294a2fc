"""Detection needs hardly more memory than plain generation of the same cases."""

import subprocess
import sys

import pytest

PEAKS = """
import resource, sys
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
from rmutils.heads import DetectConfig, detection
from rmutils.models import LanguageModel

tokenizer = PreTrainedTokenizerFast.from_pretrained(sys.argv[1])
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_config(LlamaConfig(
    vocab_size=len(tokenizer), hidden_size=256, intermediate_size=512, num_hidden_layers=4,
    num_attention_heads=4, max_position_embeddings=4096, bos_token_id=None,
    eos_token_id=tokenizer.eos_token_id), attn_implementation="sdpa").eval()
lm = LanguageModel(model, tokenizer, "random", "llama", "random")
config = DetectConfig(lengths=(2500,), depths=[0.0, 1.0], needles=1,
                      max_new_tokens=8)
detection.SUCCESS_ROUGE = -1.0
cases = detection.build_cases(lm, config)

for case in cases:
    model.generate(torch.tensor([case.input_ids]), max_new_tokens=8, min_new_tokens=8,
                   do_sample=False, pad_token_id=0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
detection.detect(lm, config)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measured by Linux's ru_maxrss")
def test_peak_is_that_of_generation(tokenizer, tmp_path):
    """Two prompts of 2,500 tokens, which `generate` reads one by one, as lean as it can be. Peaks
    of a process of its own, in KiB: the second is the higher one of both."""
    tokenizer.save_pretrained(tmp_path)
    done = subprocess.run([sys.executable, "-c", PEAKS, str(tmp_path)], text=True,
                          capture_output=True, check=True)
    generation, both = map(int, done.stdout.split())
    assert both <= 1.25 * generation
