"""Small, randomly initialized models of the paper's three families and of Gemma 3's, with a real
tokenizer."""

from __future__ import annotations

import gc
import locale
import os
import pickle
import resource
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults import table

if TYPE_CHECKING:  # the process that only starts the others would load torch before they begin
    from transformers import PreTrainedTokenizerFast

    from rmutils.models import LanguageModel

# The models of most tests are so small that threads only wait; so in the processes that they start.
os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}

gc.disable()  # until all is loaded

LONGEST = ("test_browser", "test_vllm", "test_build", "test_playground_model", "test_playground",
           "test_one_quantity", "test_pages", "test_study", "test_runs", "test_figures",
           "test_environment", "test_interface", "test_objectives", "test_processes",
           "test_running")
"""Files that processes of pytest-xdist take first, in this order, so that none is left for one of
them alone. The first builds the book, and others need it: two that don't follow."""
FAMILIES = ["llama", "qwen3", "olmo3", "gemma3_text"]
WINDOWS = {"sliding_window": 24, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
OWN = {"olmo3": WINDOWS,
       # Gemma scales its embeddings up: with tied ones, a random model repeats its last token.
       "gemma3_text": {**WINDOWS, "query_pre_attn_scalar": 12, "tie_word_embeddings": False},
       "gemma2": {**WINDOWS, "attn_logit_softcapping": 2.0, "tie_word_embeddings": False}}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def pytest_configure(config):
    config.addinivalue_line("markers", "fault(kind, what): injects a fault (tests/faults/table.py)")
    if table.LONG and not hasattr(config, "workerinput"):  # not in a process of pytest-xdist
        config.pluginmanager.register(table.Collector())


def pytest_collection_modifyitems(items):
    table.mark(items)
    places = {stem: place for place, stem in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONGEST)))


def pytest_collection_finish():
    """What is loaded by now stays: looking through it for garbage took a twentieth of the time."""
    gc.enable()
    gc.freeze()


@pytest.fixture
def tally(request):
    """Counts tries of a fault, where a test makes more than one: see tests/faults/table.py."""
    return table.tallying(request.node.user_properties)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE of 512 entries, trained on the shipped haystack."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    from rmutils.corpora.niah import load_haystacks

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    inner.train_from_iterator([h.text for h in load_haystacks()], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>",
                                   pad_token="<|endoftext|>", chat_template=TEMPLATE)


def make_lm(family: str, tokenizer: PreTrainedTokenizerFast, seed: int = 0,
            **settings) -> LanguageModel:
    """4 layers x 4 heads (2 key heads), float32, of any family of transformers; with `WINDOWS`
    where one of `FAMILIES` has any. Gemma 2 caps its scores, which SDPA cannot."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    from rmutils.models import LanguageModel

    torch.manual_seed(seed)
    config = CONFIG_MAPPING[family](**{
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 1024, "initializer_range": 0.5, "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": True, **OWN.get(family, {}), **settings})
    model = AutoModelForCausalLM.from_config(
        config, attn_implementation="eager" if family == "gemma2" else "sdpa").eval()
    return LanguageModel(model, tokenizer, f"random-{family}", family, f"random {family} {seed}")


@pytest.fixture(params=FAMILIES)
def lm(request, tokenizer) -> LanguageModel:
    """One model of each family in turn."""
    return make_lm(request.param, tokenizer)


two_families = pytest.mark.parametrize("lm", ["llama", "olmo3"], indirect=True)
"""One without windows and one with; where only these differ, the others show nothing more."""


@pytest.fixture
def llama(tokenizer) -> LanguageModel:
    return make_lm("llama", tokenizer)


@pytest.fixture(scope="session")
def smollm() -> LanguageModel:
    """The real model; fetched once into the user's cache."""
    from rmutils.core.errors import UserError
    from rmutils.models import load_model

    try:
        return load_model("smollm2-135m")
    except UserError as error:
        if "cannot reach" in str(error) or "HF_HUB_OFFLINE" in str(error):
            pytest.skip(f"neither cached nor to be had: {error}")
        raise


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The Python of the environment that has vLLM."""
    from rmutils.core.paths import ROOT

    environment = ROOT / ".venv-vllm"
    if not (environment / ".complete").exists():
        message = "no vLLM: `make vllm` installs it, or says why it cannot"
        (pytest.fail if "RMUTILS_NO_SKIP" in os.environ else pytest.skip)(message)
    return environment / "bin" / "python"


@pytest.fixture
def full_disk():
    """`with full_disk():` files end after 20 KB. Not longer, as pytest may write to a file too."""
    @contextmanager
    def limited(size=20_000):
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)

    return limited


@pytest.fixture
def ascii_locale():
    """Files whose encoding nobody names are read and written as ASCII here, as on some servers."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    yield
    locale.setlocale(locale.LC_CTYPE, before)


class Here:
    """In the place of a pool of processes, each of which imports torch for seconds: the shares in
    turn, in this one. What processes would be sent is pickled."""

    def __init__(self, count, *settings):
        self.count = count

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, function, *arguments):
        done = Future()
        done.set_result(function(*pickle.loads(pickle.dumps(arguments))))
        return done


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """`side_by_side` starts no process, but in the tests of its own."""
    from rmutils.core import journal

    monkeypatch.setattr(journal, "ProcessPoolExecutor", Here)


@pytest.fixture
def forgotten(monkeypatch):
    """What a test registers is forgotten afterwards."""
    from rmutils.evaluation.helmet.metrics import METRICS
    from rmutils.evaluation.helmet.suite import DATASETS
    from rmutils.heads.score_kinds import SCORES
    from rmutils.models.families import FAMILIES
    from rmutils.preference.strategies import STRATEGIES

    for registry in (DATASETS, FAMILIES, METRICS, SCORES, STRATEGIES):
        monkeypatch.setattr(registry, "_known", dict(registry))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache for models and results."""
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny(cache, tmp_path, monkeypatch, llama):
    """Folder of a saved small Llama. No result is stored, and its every answer is a success."""
    from rmutils.core import results
    from rmutils.heads import detection

    monkeypatch.setattr(results, "SHIPPED_ARTIFACTS", tmp_path / "shipped")
    monkeypatch.setattr(detection, "SUCCESS_ROUGE", -1.0)
    llama.model.save_pretrained(tmp_path / "tiny model")
    llama.tokenizer.save_pretrained(tmp_path / "tiny model")
    return tmp_path / "tiny model"
