"""vLLM, in its own process and served, says what transformers says of the same model and heads."""

import json
import os
import re
import socket
import subprocess
import urllib.request
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pandas as pd
import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.core.paths import ROOT
from rmutils.heads import export_masked, mask_heads
from rmutils.models import load_model
from rmutils.models.engine.generation import generate
from rmutils.preference import vllm
from rmutils.preference.instructions import draw
from rmutils.preference.responses import ResponseConfig, Transformers, respond
from rmutils.preference.served import Server
from rmutils.preference.vllm import VLLM
from tests.clock import until

MODELS = ["tiny-llama", "tiny-olmo3"]
ASKED = draw("world", 24).instructions
HEADS = ((0, 3), (1, 1), (1, 8), (2, 0), (2, 5), (3, 14))
REAL_HEADS = ((17, 3), (18, 6), (20, 6), (23, 2), (24, 4))
GREEDY = ResponseConfig(temperature=0, max_new_tokens=24)
REAL = GREEDY.changed({"max_new_tokens": 8})
REAL_MASKED = REAL.changed({"heads": REAL_HEADS})
SAMPLED = ResponseConfig(temperature=1, top_p=0.95, max_new_tokens=24, seed=3)
LONG = [f"{index} {' the old mill' * 100}" for index in range(16)]
"""Together more tokens than an engine reads at once unless it is told otherwise."""
TIE = 1e-3
"""Where the two highest logits are as near as this, the last bits may choose."""


def masked(config: ResponseConfig) -> ResponseConfig:
    return config.model_copy(update={"heads": HEADS})


def answers(python: Path, tasks: list[dict]) -> list[dict]:
    """What vLLM answers in a process of its own."""
    asked = [i.text for i in ASKED]
    tasks = [{"asked": asked, **task, "config": task["config"].model_dump(mode="json")}
             for task in tasks]
    done = subprocess.run(
        [python, Path(__file__).parent / "vllm_answers.py"], input=json.dumps(tasks), text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def alone(vllm_python) -> dict:
    """Answers of an engine with processes of its own, and then of others without, which start
    sooner: all from one process, as vLLM takes long to import."""
    small = {"kv_cache_memory_bytes": 1 << 26, "block_size": 32}  # cached prompts
    tasks = {f"processes, {kind}": {"model": "tiny-llama", "config": config, "processes": True}
             for kind, config in [("whole", GREEDY), ("sampled", masked(SAMPLED))]}
    tasks |= {f"{model}, {kind}": {"model": model, "config": config, "engine": small}
             for model in reversed(MODELS)
             for kind, config in [("whole", GREEDY), ("masked", masked(GREEDY))]}
    llama = {"model": "tiny-llama", "config": masked(SAMPLED), "engine": small}
    tasks |= {
        "whole again": {**llama, "config": GREEDY},
        "sampled": llama,
        "reversed": {**llama, "asked": [i.text for i in ASKED[::-1]]},
        "other seed": {**llama, "config": masked(SAMPLED).model_copy(update={"seed": 4})},
        "stopped": {**llama, "stop_after": 5},
        "one by one": {**llama, "engine": {**small, "max_num_seqs": 1}},
        "short window": {**llama, "engine": {**small, "max_model_len": 8}},
        "no memory": {**llama, "engine": {"kv_cache_memory_bytes": 1}},
        "many tokens": {**llama, "asked": LONG},
    }
    found = answers(vllm_python, list(tasks.values()))
    return dict(zip(tasks, found, strict=True))


@torch.inference_mode()
def without_ties(lm, config: ResponseConfig) -> list[int]:
    """Indices of the instructions whose greedy answer meets no tie, stop token included."""
    kept = []
    with mask_heads(lm, config.heads):
        prompts = [lm.render(i.text, thinking=config.thinking) for i in ASKED]
        said = generate(lm, prompts, max_new_tokens=config.max_new_tokens)
        for index, (prompt, tokens) in enumerate(zip(prompts, said, strict=True)):
            logits = lm.model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :]
            best = logits[: config.max_new_tokens].topk(2).values
            if (best[:, 0] - best[:, 1]).min() > TIE:
                kept.append(index)
    return kept


def assert_same_as_transformers(found: pd.DataFrame, lm, config: ResponseConfig) -> None:
    kept = without_ties(lm, config)
    assert len(kept) >= 20
    pd.testing.assert_frame_equal(found.iloc[kept], respond(Transformers(lm), ASKED, config)
                                  .iloc[kept])


def table(result: dict) -> pd.DataFrame:
    assert "error" not in result, result
    columns = "id", "instruction", "text", "tokens", "finished"
    return pd.DataFrame({column: result[column] for column in columns})


def assert_nearly_equal(one: pd.DataFrame, two: pd.DataFrame) -> None:
    """But for one answer: the batch is in the last bits of the logits, and a draw may be there."""
    assert one["id"].tolist() == two["id"].tolist()
    assert (one["text"] != two["text"]).sum() <= 1


@pytest.mark.parametrize("model", MODELS)
def test_greedy_answers(alone, model):
    lm = load_model(model)
    for kind, config in ("whole", GREEDY), ("masked", masked(GREEDY)):
        assert_same_as_transformers(table(alone[f"{model}, {kind}"]), lm, config)
    assert alone[f"{model}, whole"]["text"] != alone[f"{model}, masked"]["text"]


def test_identity(alone):
    lm = load_model("tiny-llama")
    assert re.fullmatch(rf"{lm.identity}, vllm \d+\.\d+\.\d+", alone["sampled"]["identity"])


def test_the_whole_model_comes_back(alone):
    assert alone["whole again"] == alone["tiny-llama, whole"]


def test_order_and_batch_do_not_matter(alone):
    expected = table(alone["sampled"])
    assert_nearly_equal(table(alone["reversed"])[::-1].reset_index(drop=True), expected)
    assert_nearly_equal(table(alone["one by one"]), expected)
    assert (table(alone["other seed"])["text"] != expected["text"]).sum() >= 12


def test_no_prompt_is_read_in_parts(alone):
    """vLLM takes back what it sampled after a part, which a CPU's random numbers cannot do."""
    lm = load_model("tiny-llama")
    assert sum(len(lm.render(text)) for text in LONG) > 4096
    assert len(table(alone["many tokens"])) == len(LONG)


def test_stopped_run_goes_on(alone):
    assert alone["stopped"]["counts"] == [24, 19]
    assert_nearly_equal(table(alone["stopped"]), table(alone["sampled"]))


def test_refusals_are_told(alone):
    assert re.match("vLLM cannot run tiny-llama: .* 8 ", alone["short window"]["error"])
    assert re.match("vLLM cannot run tiny-llama: .*cache", alone["no memory"]["error"])


def test_engine_in_processes_of_its_own(alone):
    """As vLLM runs unless it is told otherwise; weights are changed in another process."""
    assert alone["processes, whole"] == alone["tiny-llama, whole"]
    assert_nearly_equal(table(alone["processes, sampled"]), table(alone["sampled"]))


@pytest.fixture(scope="module")
def real(vllm_python, smollm) -> dict:
    """Greedy answers of a model from a GGUF file."""
    asked = [i.text for i in ASKED[:2]]
    kinds = {"whole": REAL, "masked": REAL_MASKED}
    found = answers(vllm_python, [
        {"model": "smollm2-135m", "config": config, "asked": asked, "engine": {"block_size": 32}}
        for config in kinds.values()])
    return dict(zip(kinds, found, strict=True))


def test_model_from_a_gguf_file(real, smollm):
    """vLLM reads no GGUF file: it gets a folder with the weights that were read from it."""
    for kind, config in ("whole", REAL), ("masked", REAL_MASKED):
        expected = respond(Transformers(smollm), ASKED[:2], config)
        pd.testing.assert_frame_equal(table(real[kind]), expected)


def test_not_installed(llama, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(vllm, "version", missing)
    with pytest.raises(UserError, match="not installed .* `make vllm`"):
        VLLM(llama)


@pytest.fixture(scope="module")
def served(vllm_python, tmp_path_factory):
    """The address of a server of the masked model, and its folder."""
    root = tmp_path_factory.mktemp("served")
    folder = export_masked(load_model("tiny-llama"), HEADS, root / "masked")
    environment = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, log = f"http://127.0.0.1:{port}", root / "log"
    with log.open("w") as stream:
        server = subprocess.Popen(
            [vllm_python.parent / "vllm", "serve", folder, "--dtype", "float32", "--host",
             "127.0.0.1", "--port", str(port), "--enforce-eager",
             "--kv-cache-memory-bytes", str(1 << 28)],
            stdout=stream, stderr=stream, env=environment)
    try:
        wait_until_up(address, server, log)
        yield {address: folder}
    finally:
        server.terminate()
        server.wait(60)


def wait_until_up(address: str, server: subprocess.Popen, log: Path) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def is_up() -> bool:
        assert server.poll() is None, log.read_text()[-3000:]
        with suppress(OSError):
            opener.open(f"{address}/health", timeout=5).close()
            return True
        return False

    until(is_up)


def test_served(served, alone):
    lm = load_model("tiny-llama")
    backend = Server(lm, served)
    assert re.fullmatch(rf"{lm.identity}, served by vllm \d+\.\d+\.\d+", backend.identity)
    assert_same_as_transformers(respond(backend, ASKED, masked(GREEDY)), lm, masked(GREEDY))
    assert_nearly_equal(respond(backend, ASKED, masked(SAMPLED)), table(alone["sampled"]))


def test_the_server_is_asked_what_it_serves(served):
    address, = served
    with pytest.raises(UserError, match="serves masked, not .*tiny-llama"):
        Server(load_model("tiny-llama"), {address: "tiny-llama"})


def test_what_a_server_refuses_is_told(served, monkeypatch):
    monkeypatch.setattr("rmutils.core.server.PAUSE", 0.01)
    backend = Server(load_model("tiny-llama"), served)
    with pytest.raises(UserError, match="failed: 400 Bad Request: .*4096"):
        respond(backend, ASKED[:1], masked(GREEDY).model_copy(update={"max_new_tokens": 5000}))
