"""Teaching models: what they read, and a training that can be stopped and done again."""

import hashlib
import re
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM, Olmo3ForCausalLM, Qwen3ForCausalLM

from rmutils import load_model
from rmutils.core.errors import UserError
from rmutils.corpora.world.lexicon import names
from rmutils.models.known_models import REGISTRY
from rmutils.models.teaching import RECIPES, TeachingRecipe, pretraining, stream
from rmutils.models.teaching import stream as tokenizer
from rmutils.models.teaching.stream import NO_THOUGHT, build_tokenizer

train = partial(pretraining.train, device="cpu")
CLASSES = {"llama": LlamaForCausalLM, "qwen3": Qwen3ForCausalLM, "olmo3": Olmo3ForCausalLM}
TEXT = "Alan Branbeck hid 27 tin keys in 1843.\n\nWas it an odd thing? \N{SNOWMAN} \"Yes!\""
TURNS = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Alan."},
         {"role": "user", "content": "Why?"}]


@pytest.fixture(scope="module", autouse=True)
def few_texts():
    """A tokenizer in a tenth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer, "TEXTS", 60)
        yield


def tiny(family: str = "llama", **changes) -> TeachingRecipe:
    """Two rows a step; Olmo 3 has windows shorter than the rows."""
    return TeachingRecipe(**{
        "family": family, "vocab_size": 400, "hidden_size": 16, "intermediate_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
        "sliding_window": 16 if family == "olmo3" else None, "max_position_embeddings": 256,
        "steps": 6, "tokens_per_step": 128, "curriculum": ((1.0, 64),), "warmup": 2,
        **changes})


def reading(**changes) -> stream.Stream:
    """A stream of 40 steps and a tokenizer that knows the common words."""
    recipe = tiny(**{"vocab_size": 1200, "steps": 40, "tokens_per_step": 1024,
                     "curriculum": ((0.25, 64), (1.0, 256))} | changes)
    return stream.Stream(recipe, build_tokenizer(1200, switch=recipe.switch))


def weights_of(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def curve_of(folder):
    """Header and rows without the time."""
    return [line.rsplit(",", 1)[0] for line in (folder / "training.csv").read_text().splitlines()]


@contextmanager
def noting_steps(monkeypatch):
    """The steps that are run."""
    steps, batch = [], stream.Stream.batch
    with monkeypatch.context() as patch:
        patch.setattr(stream.Stream, "batch", lambda s, step: steps.append(step) or batch(s, step))
        yield steps


# The recipes.

def test_recipes_are_those_of_the_registry():
    assert {name: (r.family, r.seed) for name, r in RECIPES.items()} == {
        s.name: (s.family, s.seed) for s in REGISTRY.values() if s.seed is not None}
    assert len({r.digest() for r in RECIPES.values()}) == len(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_every_step_has_a_row_length_and_a_rate(name):
    recipe = RECIPES[name]
    lengths = [recipe.row_length(step) for step in range(recipe.steps)]
    assert lengths == sorted(lengths)  # they grow
    assert {*lengths} == {length for _, length in recipe.curriculum}
    assert max(lengths) <= recipe.max_position_embeddings
    rates = [recipe.rate(step) for step in range(recipe.steps)]
    top = rates.index(1)
    assert top == recipe.warmup - 1 and rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True) and 0 < rates[-1] < 0.1


def test_curriculum_by_hand():
    recipe = tiny(steps=10, curriculum=((0.3, 64), (0.5, 100), (1.0, 200)))
    assert [recipe.row_length(i) for i in range(10)] == [64] * 3 + [100] * 2 + [200] * 5


# The tokenizer.

@pytest.mark.parametrize("thinking", [False, True])
def test_tokenizer(thinking):
    made = build_tokenizer(1200, switch=thinking)  # so many that digits could be merged
    again = build_tokenizer(1200, switch=thinking)
    assert made.backend_tokenizer.to_str() == again.backend_tokenizer.to_str()
    assert len(made) == 1200 and max(made.get_vocab().values()) == 1199
    assert made.decode(made.encode(TEXT)) == TEXT
    assert [made.decode(i) for i in made.encode("1843: 27")] == [*"1843", ":", " ", *"27"]
    assert not [t for t in made.get_vocab() if len(t) > 1 and re.search(r"\d", t)]


@pytest.mark.parametrize("thinking", [False, True])
def test_chat_template(thinking):
    made = build_tokenizer(400, switch=thinking)

    def written(**options):
        return made.apply_chat_template(TURNS, tokenize=False, **options)

    turns = "<|user|>Who?<|assistant|>Alan.<|end|><|user|>Why?"
    assert written() == written(enable_thinking=False) == turns
    assert written(add_generation_prompt=True) == turns + "<|assistant|>"
    assert written(add_generation_prompt=True, enable_thinking=True) == turns + "<|assistant|>"
    assert written(add_generation_prompt=True, enable_thinking=False) == \
        turns + "<|assistant|>" + NO_THOUGHT * thinking
    with pytest.raises(Exception, match="Only user and assistant"):
        made.apply_chat_template([{"role": "system", "content": "Be kind."}], tokenize=False)


def test_thoughts_can_be_told_from_answers(tmp_path):
    """Also by readers who leave special tokens out, and after saving."""
    build_tokenizer(400, switch=True).save_pretrained(tmp_path)
    made = tokenizer.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    ids = made.encode("<|assistant|><think>\nAlan.\n</think>\n\nYes.<|end|><|pad|>")
    assert made.decode(ids, skip_special_tokens=True) == "<think>\nAlan.\n</think>\n\nYes."
    assert len(made.encode("<think></think><|user|><|end|>")) == 4


# The stream.

@pytest.mark.parametrize("step", [0, 30])
def test_batches_depend_on_recipe_and_step_only(step):
    one, two = reading(), reading()
    one.batch(3)
    one.batch(step + 1)
    for a, b in zip(one.batch(step), two.batch(step), strict=True):
        assert torch.equal(a, b)
    for other in (two.batch(step + 1), reading(seed=1).batch(step)):
        assert not torch.equal(one.batch(step)[0], other[0])


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_weight_is_1_on_answers_and_their_end(family):
    """The turns, read again from the decoded text. After the last end a turn may be cut."""
    source, thoughts = reading(family=family, repeats=0.3), 0
    said = re.compile(rf"<\|assistant\|>(?:{re.escape(NO_THOUGHT)})?(.*?<\|end\|>)", re.DOTALL)
    for step in range(0, 40, 3):
        for ids, weights in zip(*source.batch(step), strict=True):
            tokens = [source.tokenizer.decode(i) for i in ids]
            text = "".join(tokens)
            assert text.startswith("<|user|>")
            whole = text.rfind("<|end|>") + len("<|end|>")
            spans = [m.span(1) for m in said.finditer(text)]
            place = 0
            for token, weight in zip(tokens, weights, strict=True):
                if place < whole:
                    answer = any(start <= place < stop for start, stop in spans)
                    assert weight == pytest.approx(1 if answer else source.recipe.prompt_weight)
                place += len(token)
            thoughts += len(re.findall(r"<think>\n[A-Z\d]", text))
            assert ("<think>" in text) <= source.recipe.switch
    assert (thoughts > 30) == source.recipe.switch


def test_with_all_thoughts_every_answer_begins_with_one():
    source = reading(family="olmo3", thoughts=1.0)
    assert not source.recipe.switch and "enable_thinking" not in source.tokenizer.chat_template
    found = []
    for step in range(0, 40, 5):
        for ids in source.batch(step)[0]:
            turns = source.tokenizer.decode(ids).split("<|assistant|>")[1:]
            found += [turn.split("<|end|>")[0] for turn in turns if "<|end|>" in turn]
    assert len(found) > 50 and all(
        re.fullmatch(r"<think>\n.+\n</think>\n\n.+", answer, re.DOTALL) for answer in found)


def test_nothing_held_out_is_read():
    """Words with a capital letter; the last one of a row may be cut, and so be another's name."""
    source, found = reading(), set()
    for step in range(5, 35):
        for ids in source.batch(step)[0]:
            found |= {*re.findall(r"[A-Z]\w+", source.tokenizer.decode(ids).rsplit(" ", 1)[0])}
    for kind in ("first", "last", "place", "title"):
        assert len(found & {*names(kind, "train")}) > 50
        assert not found & {*names(kind, "held_out")}


# The training.

def test_losses_against_a_slow_loop():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 7, 11, generator=draw)
    ids = torch.randint(0, 11, (3, 8), generator=draw)
    weights = torch.tensor([0.0, 0.25, 1.0])[torch.randint(0, 3, (3, 8), generator=draw)]
    total, parts = [0.0, 0.0], {1.0: [], 0.25: [], 0.0: []}
    for row in range(3):
        for place in range(7):
            odds = logits[row, place].double().exp()
            nats = -(odds[ids[row, place + 1]] / odds.sum()).log().item()
            weight = weights[row, place + 1].item()
            total = [total[0] + weight * nats, total[1] + weight]
            parts[weight].append(nats)
    loss, answer, prompt = pretraining.losses(logits, ids, weights)
    assert loss.item() == pytest.approx(total[0] / total[1])
    assert answer == pytest.approx(sum(parts[1.0]) / len(parts[1.0]))
    assert prompt == pytest.approx(sum(parts[0.25]) / len(parts[0.25]))


def test_dropout_takes_whole_heads_and_layers(tmp_path):
    """Shares against those worked out by hand: 0.4 of the heads are off, and in the plain rows,
    every other one, 0.3 + 0.7 x 0.4; half of each rate when the ramp is half way up."""
    recipe = tiny(head_dropout=0.4, layer_dropout=0.3, steps=100, dropout_from=(0.1, 0.3))
    run = pretraining._Run(recipe, build_tokenizer(400, switch=False), tmp_path, "cpu")
    run.plain = torch.tensor([True, False] * 10_000)[:, None, None, None]
    for step, head, layer in [(10, 0, 0), (20, 0.2, 0.15), (30, 0.4, 0.3), (99, 0.4, 0.3)]:
        run.step = step
        kept, = run._drop_heads(None, (torch.ones(20_000, 3, 16),))
        each = kept.unflatten(-1, (4, 4))
        assert torch.equal(each, each[:, :1, :, :1].expand_as(each))  # at all places alike
        off = each[:, 0, :, 0] == 0
        for rows, lost in ((off[::2], layer), (off[1::2], 0)):
            assert rows.float().mean() == pytest.approx(lost + (1 - lost) * head, abs=0.015)
            assert rows.all(1).float().mean() == pytest.approx(
                lost + (1 - lost) * head ** 4, abs=0.015)


def test_what_dropout_switches_off_is_what_a_mask_zeroes(tmp_path):
    """All heads off: as if W_o were zero in all layers."""
    ids = torch.arange(40).reshape(2, 20)
    for rate, masked in [(0.0, False), (1.0, True)]:
        run = pretraining._Run(tiny(head_dropout=rate, layer_dropout=0.0),
                            build_tokenizer(400, switch=False), tmp_path, "cpu")
        run.step, run.plain = run.recipe.steps, torch.zeros(2, 1, 1, 1)
        plain = pretraining.build_model(run.recipe, run.stream.tokenizer)
        with torch.no_grad():
            for layer in plain.base_model.layers:
                layer.self_attn.o_proj.weight *= not masked
            assert torch.equal(run.model(ids).logits, plain(ids).logits)


def test_a_step_is_torchs(tmp_path):
    """Of products as exact as bfloat16 can hold them, each off by less than torch's own are."""
    words = build_tokenizer(tiny().vocab_size, switch=False)
    run = pretraining._Run(tiny(), words, tmp_path, "cpu")
    muon = run.optimizers[0]
    matrices = muon.param_groups[0]["params"]
    before = [p.detach().clone() for p in matrices]
    torch.manual_seed(0)
    for p in matrices:
        p.grad = torch.randn_like(p)
    muon.step()
    for p, old in zip(matrices, before, strict=True):
        plain = torch.nn.Parameter(old.clone())
        plain.grad = p.grad
        settings = {key: muon.param_groups[0][key] for key in ("lr", "weight_decay")}
        torch.optim.Muon([plain], **settings, adjust_lr_fn="original").step()
        moved, expected = p.detach() - old, plain.detach() - old
        assert (moved - expected).norm() < 0.02 * expected.norm()


def test_products_are_rounded_once():
    a, b, c = (torch.randn(60, 60, generator=torch.Generator().manual_seed(i)).bfloat16()
               for i in range(3))
    exact = 2 * c.double() + 3 * (a.double() @ b.double())
    with pretraining._RoundedProducts():
        assert torch.equal(a @ b, (a.double() @ b.double()).bfloat16())
        assert torch.equal(torch.addmm(c, a, b, beta=2, alpha=3), exact.bfloat16())
        assert (a.float() @ b.float()).dtype == torch.float32


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A training that nothing disturbs."""
    torch.manual_seed(1)
    return train(tiny(), tmp_path_factory.mktemp("trained") / "one")


def test_same_recipe_same_weights(one, tmp_path):
    torch.manual_seed(2)
    two = train(tiny(), tmp_path / "two")
    other = train(tiny(seed=1), tmp_path / "other")
    assert weights_of(one) == weights_of(two) != weights_of(other)
    assert curve_of(one) == curve_of(two) != curve_of(other)
    rows = [line.split(",") for line in curve_of(one)]
    assert rows[0] == ["step", "length", "answer_loss", "prompt_loss"]
    assert [row[:2] for row in rows[1:]] == [[str(step), "64"] for step in range(6)]


def test_one_thread_and_then_as_many_as_before(tmp_path, monkeypatch):
    seen, advance = [], pretraining._Run.advance
    monkeypatch.setattr(pretraining._Run, "advance",
                        lambda run: seen.append(torch.get_num_threads()) or advance(run))
    torch.set_num_threads(2)
    try:
        train(tiny(steps=1), tmp_path / "a model")
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(1)


def test_stopped_and_resumed(one, tmp_path, monkeypatch):
    """Stopped after the third step; the checkpoint is of the second."""
    monkeypatch.setattr(pretraining, "CHECKPOINT_STEPS", 2)
    progress, done = pretraining.progress_bar, []

    @contextmanager
    def stopping(*arguments, **options):
        with progress(*arguments, **options) as advance:
            def advance_and_stop(amount):
                advance(amount)
                done.append(amount)
                if len(done) == 3:
                    raise KeyboardInterrupt
            yield advance_and_stop

    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pretraining, "progress_bar", stopping)
        train(tiny(), folder)
    assert not (folder / "model.safetensors").exists()
    with noting_steps(monkeypatch) as steps:
        train(tiny(), folder)
    assert steps == [2, 3, 4, 5]
    assert weights_of(folder) == weights_of(one) and curve_of(folder) == curve_of(one)


def test_a_finished_training_is_not_run_again_and_no_other_in_its_place(one, monkeypatch):
    before = weights_of(one), curve_of(one)
    with noting_steps(monkeypatch) as steps:
        train(tiny(), one)
        for other in (tiny(seed=1), tiny(matrix_lr=0.01), tiny(steps=7)):
            with pytest.raises(UserError, match="holds a training of another recipe"):
                train(other, one)
    assert steps == [] and before == (weights_of(one), curve_of(one))


@pytest.mark.parametrize("family", CLASSES)
def test_trained_model_loads(family, tmp_path):
    recipe = tiny(family, num_hidden_layers=4)
    lm = load_model(str(train(recipe, tmp_path / "a model")))
    assert type(lm.model) is CLASSES[family] and lm.family == family
    assert (lm.shape, lm.window, lm.corpus) == ((4, 4), 256, "world")
    assert lm.stop_ids == {lm.tokenizer.convert_tokens_to_ids("<|end|>")}
    assert lm.model.config.num_key_value_heads == 2
    kinds = getattr(lm.model.config, "layer_types", None)
    if family == "olmo3":
        assert kinds == ["sliding_attention"] * 3 + ["full_attention"]
        assert lm.model.config.sliding_window == 16
    assert lm.user_turn() == ("<|user|>", "<|assistant|>" + NO_THOUGHT * (family == "qwen3"))
    ids = lm.tokenizer(TEXT)["input_ids"]
    assert ids == build_tokenizer(400, switch=False)(TEXT)["input_ids"]


def test_a_training_begins_with_the_weights_of_another_model(tmp_path, monkeypatch):
    first = train(tiny(), tmp_path / "first")
    words = build_tokenizer(400, switch=False)
    own, new, begun = (pretraining.build_model(recipe, words).state_dict() for recipe in (
        tiny(begins=str(first)), tiny(), tiny(begins=str(train(tiny(), tmp_path / "other",
                                                               until=1)))))
    weights = load_model(str(first)).model.state_dict()
    assert all(torch.equal(own[name], weights[name]) for name in weights)
    for other in (new, begun):
        assert not all(torch.equal(own[name], other[name]) for name in own)
    with pytest.raises(UserError, match="has other tokens than a training of this recipe"):
        pretraining.build_model(tiny(begins="tiny-llama"), words)


def test_snapshots_are_the_model_on_its_way(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "SNAPSHOTS", (0, 2))
    folder = train(tiny(), tmp_path / "a model")
    paths = sorted((folder / ".training" / "snapshots").iterdir())
    assert [path.name for path in paths] == [f"{n:06d}.safetensors" for n in (0, 2, 6)]
    first, second, last = map(load_file, paths)
    new = pretraining.build_model(tiny(), build_tokenizer(400, switch=False)).state_dict()
    final = load_file(folder / "model.safetensors")
    assert first.keys() == second.keys() == last.keys() == final.keys()
    for name, weights in first.items():
        assert torch.equal(weights, new[name]) and torch.equal(last[name], final[name])
        assert not torch.equal(weights, second[name])


def test_training_stopped_in_its_last_snapshot_makes_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "CHECKPOINT_STEPS", 2)
    snapshot = pretraining._Run._snapshot

    def stop_at_the_end(run):
        if run.step == 6:
            raise KeyboardInterrupt
        snapshot(run)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pretraining._Run, "_snapshot", stop_at_the_end)
        train(tiny(), tmp_path / "a model")
    train(tiny(), tmp_path / "a model")
    assert (tmp_path / "a model/.training/snapshots/000006.safetensors").exists()


def test_loss_that_is_not_finite_is_told(tmp_path, monkeypatch):
    """Nothing of it is saved, and the last checkpoint is kept."""
    monkeypatch.setattr(pretraining, "CHECKPOINT_STEPS", 2)
    advance = pretraining._Run.advance

    def spoil(run):
        if run.step == 3:
            with torch.no_grad():
                run.model.get_input_embeddings().weight.fill_(float("nan"))
        advance(run)

    with monkeypatch.context() as patch, pytest.raises(UserError, match="loss is nan at step 3"):
        patch.setattr(pretraining._Run, "advance", spoil)
        train(tiny(), tmp_path / "a model")
    assert not (tmp_path / "a model" / "model.safetensors").exists()
    with noting_steps(monkeypatch) as steps:
        train(tiny(), tmp_path / "a model")
    assert steps == [2, 3, 4, 5]
