"""A training that is stopped, done again, refused, or comes upon what is not a number."""

import copy
import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from rmutils import load_model
from rmutils.core.errors import UserError
from rmutils.models.trained import load_adapter
from rmutils.training import running, train, trainers
from tests.conftest import make_lm
from tests.training.conftest import eight_pairs, quick

KINDS = {"dpo": {}, "sft": {"objective": "sft"}, "lora": {"lora_rank": 2}}


@contextmanager
def stopping(monkeypatch, step: int):
    """Training is interrupted after a step."""
    original = trainers.progress_bar

    @contextmanager
    def stopped(description, total, **options):
        with original(description, total, **options) as advance:
            done = []

            def advance_and_stop(amount):
                advance(amount)
                done.append(amount)
                if description.startswith("training") and len(done) == step:
                    raise KeyboardInterrupt
            yield advance_and_stop

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(trainers, "progress_bar", stopped)
        yield


@contextmanager
def noting(monkeypatch):
    """The rows of each batch in turn, and the number of batches that the reference model sees."""
    rows, reference = [], []
    loss, ask = trainers._Watched.compute_loss, trainers.WatchedDPO.compute_ref_log_probs

    def noting_loss(self, model, inputs, *arguments, **options):
        rows.append(inputs["row"].tolist())
        return loss(self, model, inputs, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trainers._Watched, "compute_loss", noting_loss)
        patch.setattr(trainers.WatchedDPO, "compute_ref_log_probs",
                      lambda *a: reference.append(1) or ask(*a))
        yield rows, reference


class Whole(NamedTuple):
    """A training that nothing disturbs; its batches, and how often the reference was asked."""

    folder: Path
    rows: list[list[int]]
    reference: list[int]


@pytest.fixture(scope="module")
def whole(tokenizer, tmp_path_factory):
    """A function that trains each recipe once."""
    @cache
    def trained(kind="dpo", max_steps=None) -> Whole:
        recipe = quick(**KINDS[kind], max_steps=max_steps)
        with pytest.MonkeyPatch.context() as patch, noting(patch) as noted:
            folder = train(make_lm("llama", tokenizer), eight_pairs(), recipe,
                           tmp_path_factory.mktemp("whole") / kind)
        return Whole(folder, *noted)

    return trained


def weights_of(folder) -> dict[str, torch.Tensor]:
    path, = folder.glob("*.safetensors")
    return load_file(path)


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.fault("out of memory", "in a training, which goes on with fewer pairs at once")
@pytest.mark.parametrize("kind", KINDS)
def test_with_too_little_memory_fewer_pairs_are_taken_at_once(
        llama, pairs, tmp_path, monkeypatch, capsys, kind, whole):
    """It runs out in the third step: from the checkpoint of the second, batches are the same in
    smaller parts, and so, but for rounding, are the weights."""
    recipe, folder = quick(**KINDS[kind]), tmp_path / "crowded"
    assert recipe.per_device_batch == 2
    loss, taken = trainers._Watched.compute_loss, []

    def crowded(self, model, inputs, *arguments, **options):
        if self.state.global_step >= 2 and len(inputs["row"]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        taken.append((self.state.global_step, inputs["row"].tolist()))
        return loss(self, model, inputs, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trainers._Watched, "compute_loss", crowded)
        train(llama, pairs, recipe, folder)
    assert "Out of memory with 2 pairs at once. Going on with 1." in capsys.readouterr().err
    sizes = {n: [len(rows) for at, rows in taken if at == n] for n, _ in taken}
    assert sizes == {0: [2, 2], 1: [2, 2], **{n: [1] * 4 for n in range(2, len(sizes))}}
    assert sum(whole(kind).rows, []) == sum((part for _, part in taken), [])
    one, other = (weights_of(path) for path in (folder, whole(kind).folder))
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0.02, atol=2e-4, msg=name)


def test_more_pairs_at_once_are_the_same_training(llama, pairs, tmp_path, monkeypatch, whole):
    """The record, the pairs of each step and, but for rounding, the weights are the recipe's."""
    with noting(monkeypatch) as (rows, _):
        train(llama, pairs, quick(), tmp_path / "other", at_once=4)
    assert {*map(len, whole().rows)} == {2} and {*map(len, rows)} == {4}
    assert sum(whole().rows, []) == sum(rows, [])
    folders = whole().folder, tmp_path / "other"
    one, other = ((folder / "training.json").read_text() for folder in folders)
    assert one == other
    one, other = map(weights_of, folders)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0.02, atol=2e-4, msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_and_resumed(llama, pairs, tmp_path, monkeypatch, kind, whole):
    """Stopped after the third step; the checkpoint is of the second, a later one is not whole."""
    recipe, folder = quick(**KINDS[kind]), tmp_path / "stopped"
    with stopping(monkeypatch, step=3):
        train(llama, pairs, recipe, folder)
    assert names(folder) == {".lock", ".training"}
    checkpoint = folder / ".training" / "checkpoint-2"
    shutil.copytree(checkpoint, checkpoint.with_name("checkpoint-3"))
    (checkpoint.with_name("checkpoint-3") / "trainer_state.json").write_text('{"epo')
    with noting(monkeypatch) as (rows, reference):
        train(llama, pairs, recipe, folder)
    assert len(rows) == 2 * 2 and sorted(sum(rows, [])) == [*range(8)]  # one epoch, halves of 4
    assert reference == []
    undisturbed = whole(kind)
    assert undisturbed.rows[4:] == rows
    assert len(undisturbed.reference) == (4 if kind != "sft" else 0)
    assert contents(folder) == contents(undisturbed.folder)


@pytest.mark.fault("kill -9", "while the weights of a training are written")
@pytest.mark.parametrize("steps", [3, None])
def test_stopped_while_the_weights_are_written(llama, pairs, tmp_path, monkeypatch, steps, whole):
    """In the middle of an epoch, or at its end: no step is left, and none is done."""
    recipe, folder = quick(max_steps=steps), tmp_path / "stopped"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(running, "_save", interrupted)
        train(llama, pairs, recipe, folder)
    with noting(monkeypatch) as (rows, _):
        train(llama, pairs, recipe, folder)
    assert rows == [] and contents(folder) == contents(whole(max_steps=steps).folder)


def interrupted(*_):
    raise KeyboardInterrupt


def test_the_reference_is_the_first_model_also_where_it_is_asked_again(
    llama, pairs, tmp_path, monkeypatch, whole
):
    """As if the file with its log-probabilities were lost while the training stood still."""
    folder = tmp_path / "stopped"
    with stopping(monkeypatch, step=3):
        train(llama, pairs, quick(), folder)
    kept, = (folder / ".training" / "data").glob("cache-*.arrow")
    kept.unlink()
    with noting(monkeypatch) as (_, reference):
        train(llama, pairs, quick(), folder)
    assert len(reference) == 4
    assert contents(folder) == contents(whole().folder)


def test_finished_training_is_not_run_again(llama, pairs, tmp_path, monkeypatch, whole):
    folder = shutil.copytree(whole().folder, tmp_path / "out")
    before = contents(folder)
    (folder / ".training").mkdir()  # as if a kill had come while it was removed
    with noting(monkeypatch) as (rows, reference):
        train(llama, pairs, quick(), folder)
    assert rows == reference == [] and contents(folder) == before


def test_another_training_is_refused(llama, tokenizer, pairs, tmp_path, monkeypatch, whole):
    """In the folder of a finished one, and of one that was stopped."""
    finished, stopped = whole().folder, tmp_path / "stopped"
    with stopping(monkeypatch, step=3):
        train(llama, pairs, quick(), stopped)
    before = contents(finished)
    other_pairs = pairs.assign(rejected=["No.", *pairs["rejected"][1:]])
    for folder in (finished, stopped):
        for lm, table, recipe in [
            (llama, pairs, quick(seed=1)), (llama, other_pairs, quick()),
            (make_lm("llama", tokenizer, seed=1), pairs, quick()),
        ]:
            with pytest.raises(UserError, match="holds another training"):
                train(lm, table, recipe, folder)
    assert contents(finished) == before


def test_weights_of_another_origin_are_not_overwritten(tiny, pairs):
    with pytest.raises(UserError, match="holds weights of another origin"):
        train(str(tiny), pairs, quick(), tiny)
    load_model(str(tiny))


def test_what_comes_out_is_the_model_but_for_its_weights(tiny, pairs, tmp_path):
    """In its precision; settings that trainers change, such as the padding token, are as before."""
    config = json.loads((tiny / "config.json").read_text())
    (tiny / "config.json").write_text(json.dumps(config | {"corpus": "world", "pad_token_id": 2}))
    generation = json.loads((tiny / "generation_config.json").read_text())
    (tiny / "generation_config.json").write_text(json.dumps(generation | {"eos_token_id": [2, 7]}))
    base = load_model(str(tiny), dtype=torch.bfloat16)
    weights = copy.deepcopy(base.model.state_dict())
    settings = base.model.config.to_dict(), base.model.generation_config.to_dict()
    folder = train(base, pairs, quick(), tmp_path / "out")

    assert (base.model.config.to_dict(), base.model.generation_config.to_dict()) == settings
    assert all(torch.equal(t, weights[n]) for n, t in base.model.state_dict().items())
    trained = load_model(str(folder), dtype=torch.bfloat16)
    place = {"_name_or_path": str(tiny)}
    assert trained.model.config.to_dict() | place == settings[0]
    assert trained.model.generation_config.to_dict() == settings[1]
    assert (trained.stop_ids, trained.corpus, trained.shape) == ({2, 7}, "world", base.shape)
    assert trained.user_turn() == base.user_turn()
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.bfloat16}  # noqa: SIM118
        assert "lm_head.weight" not in {*file.keys()}  # is tied
    moved = [(t.float() - weights[n].float()).abs().max() for n, t in
             trained.model.state_dict().items()]
    assert 1e-4 < max(moved) < 0.1
    assert not {p.suffix for p in folder.iterdir()} & {".bin", ".pt", ".pkl"}


def test_adapters_of_other_models_are_refused(llama, tokenizer, pairs, tmp_path):
    folder = train(llama, pairs, quick(lora_rank=2, max_steps=1), tmp_path / "adapter")
    other_precision = f"{llama.identity} bfloat16"
    assert load_adapter(replace(llama, identity=other_precision), folder).shape == llama.shape
    with pytest.raises(UserError, match="was trained on random-llama with other weights"):
        load_adapter(make_lm("qwen3", tokenizer), folder)
    with pytest.raises(UserError, match="holds no LoRA adapter"):
        load_adapter(llama, tmp_path)


@pytest.mark.parametrize(("kind", "what", "spoil"), [
    ("dpo", "loss is nan", lambda out: out * torch.nan),
    ("sft", "gradient's norm is nan", lambda out: out + (out * 0).sqrt()),  # slope of a root at 0
])
def test_not_a_number_is_told_with_step_and_rows(llama, pairs, tmp_path, kind, what, spoil, whole):
    """A token that only row 6 has comes out of the embedding spoiled."""
    pairs.loc[6, "chosen"] += " \N{SNOWMAN}"
    snowman = llama.tokenizer.encode("\N{SNOWMAN}")[0]
    recipe = quick(per_device_batch=2, **KINDS[kind])
    rows = whole(kind).rows
    batch = next(i for i, found in enumerate(rows) if 6 in found)
    step = batch // 2 + 1
    guilty = rows[batch] if what.startswith("loss") else rows[2 * step - 2] + rows[2 * step - 1]

    def hook(module, inputs, out):
        return torch.where((inputs[0] == snowman)[..., None], spoil(out), out)

    llama.model.get_input_embeddings().register_forward_hook(hook)
    expected = re.escape(f"{what} at step {step}. In that batch were the rows {sorted(guilty)} of")
    with pytest.raises(UserError, match=expected):
        train(llama, pairs, recipe, tmp_path / "out")
    assert names(tmp_path / "out") == {".lock", ".training"}


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_on_a_gpu_attention_keeps_to_the_plain_kernel(
        llama, pairs, tmp_path, monkeypatch, kind):
    kernels = (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.cudnn_sdp_enabled,
               torch.backends.cuda.mem_efficient_sdp_enabled)
    before = [enabled() for enabled in kernels]
    arguments = trainers.arguments(quick(), tmp_path / "arguments")
    seen = []

    def built(*_):  # the reference model is asked here, before any step
        seen.append([enabled() for enabled in kernels])
        raise KeyboardInterrupt

    monkeypatch.setattr(type(arguments), "device", torch.device(kind))
    monkeypatch.setattr(trainers, "build", built)
    with pytest.raises(KeyboardInterrupt):
        running._run(llama, llama.model, None, quick(), arguments, tmp_path)
    assert torch.backends.cuda.math_sdp_enabled()
    assert seen == [[False] * 3 if kind == "cuda" else before]
    assert [enabled() for enabled in kernels] == before


def test_a_batch_that_cannot_be_shared_out_is_refused(llama, pairs, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(UserError, match="a batch of 4 cannot be shared out among 6 places"):
        train(llama, pairs, quick(), tmp_path / "out")
