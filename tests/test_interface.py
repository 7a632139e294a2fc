"""What `import rmutils` promises, and the code that the pages print: it runs as printed."""

import ast
import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from numpydoc.docscrape import FunctionDoc
from sphinx.util.inspect import signature, stringify_signature

import rmutils
from rmutils.book.site.pages.reference import sign
from rmutils.core.paths import CORPORA, ROOT, SHIPPED_MODELS


def snippets(page: str) -> dict[str, str]:
    """Return the Python code of a page by the heading above it."""
    found, heading = {}, ""
    for title, code in re.findall(r"^## ([^\n]+)$|```python\n(.*?)```", (ROOT / page).read_text(
            encoding="utf-8"), re.DOTALL | re.MULTILINE):
        heading = title or heading
        if code:
            assert heading not in found
            found[heading] = code
    return found


RECIPES = snippets("book/recipes.md")


@pytest.fixture
def run(tmp_path, monkeypatch, forgotten):
    """Runs a snippet in a folder that has what the pages speak of; `my-model` is a tiny one."""
    monkeypatch.chdir(tmp_path)
    for name, place in (("my-model", SHIPPED_MODELS / "tiny-llama"),
                        ("my-texts", CORPORA["world"] / "haystack")):
        (tmp_path / name).symlink_to(place, target_is_directory=True)
    (tmp_path / "others.json").write_text(json.dumps(
        {f"{layer}-{head}": [layer / 4, head / 16] for layer in range(4) for head in range(16)}))
    matplotlib.use("agg")

    def execute(code: str) -> dict:
        imported = [node.module for node in ast.walk(ast.parse(code))
                    if isinstance(node, ast.ImportFrom) and node.module.startswith("rmutils")]
        assert imported == ["rmutils"], "from rmutils alone"
        names: dict = {"__name__": "snippet"}
        exec(compile(code, "snippet", "exec"), names)
        return names

    return execute


def test_the_ten_lines_of_the_readme(run, tmp_path, capsys):
    script, = snippets("README.md").values()
    names = run(script)
    assert len([line for line in script.splitlines() if line]) <= 10
    assert names["after"] < 0.5 and names["heads"]
    assert re.fullmatch(r"(8|9)\d% found, \d% without \d+ heads\n", capsys.readouterr().out)
    assert (tmp_path / "heads.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.usefixtures("run")
def test_own_needles_and_what_is_written_and_read_again():
    lm = rmutils.load_model("my-model")
    config = rmutils.DetectConfig(lengths=[256], depths=[0.0, 0.5], needles=[
        ("The secret of Corsa Ureld is seven leather chains under the market.",
         "What is the secret of Corsa Ureld?", "seven leather chains under the market")])
    scores = rmutils.detect(lm, config)
    heads = scores.select(tau=0.1)
    with rmutils.mask_heads(lm, heads):
        after = rmutils.success_rate(lm, config)
    assert scores.success_rate.value == 1 and after < 0.5
    masked = rmutils.load_model(rmutils.export_masked(lm, heads, "my-model-masked"))
    assert rmutils.success_rate(masked, config) == after
    scores.save("heads.scores")
    loaded = rmutils.HeadScores.load("heads.scores")
    assert loaded.select(tau=0.1) == heads and loaded.model == "my-model"


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_runs_as_printed(title, run, tmp_path):
    code = RECIPES[title]
    lines = [line for line in code.splitlines() if line and "import" not in line]
    assert len(lines) <= 11, "about ten lines"
    run(code)
    for written in re.findall(r'"(my-model-\w+|[\w-]+\.(?:png|scores))"', code):
        assert (tmp_path / written).exists(), written


def test_import_is_quick_and_type_checkers_know_the_names():
    code = ("import sys, rmutils; print(sorted({'torch', 'numpy', 'pydantic'} & {*sys.modules}), "
            "{*rmutils.__all__} <= {*dir(rmutils)})")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True\n"
    stub = ast.parse((ROOT / "rmutils/__init__.pyi").read_text())
    told = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom)
            for alias in node.names}
    assert told == {*rmutils.__all__}


@pytest.mark.parametrize("name", [name for name in rmutils.__all__ if name != "UserError"])
def test_the_reference_shows_readable_signatures_and_sections(name):
    thing = getattr(rmutils, name)
    text = stringify_signature(signature(thing), unqualified_typehints=True)
    shown, returned = sign(None, "", name, thing, None, *text.split(" -> "))
    assert not re.search(r"FieldInfo|Annotated| at 0x|<", f"{shown} -> {returned}")
    if not isinstance(thing, type):
        told = ", ".join(one.name for one in FunctionDoc(thing)["Parameters"]).replace("*", "")
        assert told.split(", ") == [*inspect.signature(thing).parameters]


@pytest.mark.parametrize("make, shown", [
    (lambda: rmutils.DetectConfig(lengths=[256]), "DetectConfig(lengths=(256,))"),
    (lambda: rmutils.EvaluateConfig(samples=2), "EvaluateConfig(samples=2)"),
    (lambda: rmutils.TrainRecipe(), "TrainRecipe()")])
def test_a_configuration_shows_what_is_not_the_default(make, shown):
    assert repr(make()) == str(make()) == shown


@pytest.mark.parametrize("given", [
    ("The key is here.", "Where is the key?", "here"),
    [["The key is here.", "Where is the key?", "here"]],
    {"needle": "The key is here.", "question": "Where is the key?", "real_needle": "here"}])
def test_needles_are_given_as_texts(given):
    config = rmutils.DetectConfig(needles=given)
    assert [needle.answer_span for needle in config.needles] == [(11, 15)]
    words = config.differences(rmutils.DetectConfig())  # as a command line has them
    assert rmutils.DetectConfig().changed(words) == config
    with pytest.raises(rmutils.UserError, match="does not stand in the needle"):
        rmutils.DetectConfig(needles=[("The key is here.", "Where?", "there")])


def test_texts_and_names_stand_for_models_and_tokens():
    lm = rmutils.load_model("tiny-llama")
    ids, = rmutils.generate(lm, [lm.render("Repeat: the old mill.")], max_new_tokens=4)
    said = lm.tokenizer.decode(ids, skip_special_tokens=True)
    assert rmutils.generate("tiny-llama", "Repeat: the old mill.", max_new_tokens=4) == said
    assert rmutils.generate(lm, ("Repeat: the old mill.",), max_new_tokens=4) == [said]
    short = rmutils.ResponseConfig(max_new_tokens=2)
    assert rmutils.respond(SHIPPED_MODELS / "tiny-llama", "Say hi.", short)["instruction"].to_list(
        ) == ["Say hi."]
    config = rmutils.DetectConfig(lengths=(256,), depths=(0.5,), needles=1, max_new_tokens=8)
    assert rmutils.success_rate("tiny-llama", config) == rmutils.success_rate(lm, config)


WRONG = object()
CALLS = {name: inspect.signature(getattr(rmutils, name)) for name in rmutils.__all__
         if inspect.isfunction(getattr(rmutils, name))}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_in_plain_words(name):
    given = {other: WRONG for other, told in CALLS[name].parameters.items()
             if told.default is told.empty and told.kind is not told.VAR_KEYWORD}
    for parameter in {*CALLS[name].parameters} - {"fields", "settings"}:
        with pytest.raises(rmutils.UserError, match=f"(^|; ){parameter}: expected .*, got <object"):
            getattr(rmutils, name)(**given | {parameter: WRONG})


SCORES = rmutils.HeadScores([[[0.0, 0.5]], [[0.25, 0.25]]], "a model", cases=pd.DataFrame(
    {"success": [True, True], "needle": [0, 1]}))


@pytest.mark.parametrize("call, said", [
    (lambda: rmutils.mask_heads("tiny-llama", [(0, 3)]), "lm: expected a LanguageModel, got 'tiny"),
    (lambda: rmutils.ResponseConfig(heads=[3]), r"heads: expected pairs .*, got \[3\]"),
    (lambda: rmutils.detect("tiny-llama", rmutils.EvaluateConfig()), r"\(DetectConfig\), got Eval"),
    (lambda: rmutils.detect("tiny-llama", {"lenghts": [256]}), "Did you mean config.lengths?"),
    (lambda: rmutils.choose(SCORES, "retrievals", top_k=1), "Did you mean retrieval?"),
    (lambda: SCORES.select(tau="high"), "tau: expected a number, got 'high'"),
    (lambda: SCORES.select(tau=0.1, top_k=1), "tau=0.1 and top_k=1: give one of the two"),
    (lambda: SCORES.where([True]), "each of 2 cases, got 1 of type bool"),
    (lambda: SCORES.where(WRONG), "chosen: expected a list or an array"),
    (lambda: SCORES.select_random(1, exclude=[3]), "exclude: expected pairs"),
    (lambda: rmutils.HeadScores.load(3), "path: expected a path or text, got 3"),
    (lambda: rmutils.HeadScores.load("scores.json", 3), "expected a model or the name of one"),
    (lambda: rmutils.HeadScores("text", "a model"), "runs are no numbers"),
    (lambda: rmutils.HeadScores([[[0.5]]], "a model", clusters=[0, 1]), "clusters have the shape"),
])
def test_wrong_types_are_told(call, said):
    with pytest.raises(rmutils.UserError, match=said):
        call()


def test_what_a_person_would_pass_is_taken():
    config = rmutils.DetectConfig(lengths=(256,), depths=(0.5,), needles=1, max_new_tokens=8)
    given = {"lengths": [256], "depths": [0.5], "needles": 1, "max_new_tokens": 8}
    lm = rmutils.load_model("tiny-llama", device=torch.device("cpu"))
    assert lm.model.dtype == torch.float32
    assert (rmutils.detect(lm, given).runs == rmutils.detect(lm, config).runs).all()
    assert rmutils.ResponseConfig(heads="3-4,0-1") == rmutils.ResponseConfig(heads=[(3, 4), (0, 1)])
    for heads in ("3-7", ["3-7"], np.array([[3, 7]]), {(3, 7)}, iter([(3, 7)])):
        with rmutils.mask_heads(lm, heads):
            assert not lm.model.model.layers[3].self_attn.o_proj.weight[:, 7 * 32:8 * 32].any()
    for chosen in ([True, False], np.array([True, False]), pd.Series([True, False])):
        assert len(SCORES.where(chosen).runs) == 1
    assert rmutils.Question("host", "Who?", "Halto", golds="Halto").golds == ("Halto",)


MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
           for path in sorted((ROOT / "rmutils").rglob("*.py"))
           if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)]


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


def test_every_promised_name_has_one():
    for name in rmutils.__all__:
        assert ">>> " in getattr(rmutils, name).__doc__, name
