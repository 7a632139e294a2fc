"""Options made from configurations: every spelling that is stored or shown is understood."""

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from rmutils import __main__ as cli
from rmutils.attention.ms_poe import MsPoe
from rmutils.book.commands import measure, study
from rmutils.book.experiments.under_variants import TextsConfig, VariantConfig
from rmutils.book.site import notebooks
from rmutils.book.site.parameters import check_parameters
from rmutils.cli import evaluate, heads_commands, method
from rmutils.core import paths
from rmutils.core.config import command_line
from rmutils.evaluation.helmet import EvaluateConfig
from rmutils.heads import DetectConfig
from rmutils.pipeline.retmask import RetMaskConfig
from rmutils.training.recipes import RECIPES

BODIES = [heads_commands.detect, heads_commands.mask, measure.report, evaluate.evaluate,
          measure.abilities, method.generate, method.pairs, method.train, method.retmask,
          study.study,
          *(command.callback for command in measure.variants_app.registered_commands)]
OTHERS = ("models", "artifacts", "paper", "claims", "doctor", "collect", "estimate", "merge",
          "real-models")
"""Commands without a configuration; `estimate` takes what `run` takes."""


@pytest.fixture
def parse(monkeypatch):
    """Returns what the command's function is called with."""
    called = []
    for body in BODIES:
        monkeypatch.setattr(body, "body", lambda **values: called.append(values))
    monkeypatch.setattr(notebooks, "run_notebook", lambda path, out, values, progress:
                        called.append(check_parameters(path, values)))
    monkeypatch.setattr(notebooks, "write_page", lambda target: target)

    def words_of(words: list[str]) -> dict:
        done = CliRunner().invoke(cli.app, words)
        assert done.exit_code == 0 and called, (words, done.output)
        return called.pop()

    return words_of


def stored_commands() -> list[str]:
    """Commands of all manifests, one for each option of each command."""
    found = {}
    for manifest in sorted(paths.SHIPPED_ARTIFACTS.rglob("manifest.json")):
        command = json.loads(manifest.read_text()).get("command") or ""
        for option in re.findall(r"-p \S+|--\S+", command) or [""]:
            found.setdefault((*command.split()[:2], option), command)
    return sorted({*found.values()})


def shown_commands() -> list[str]:
    """The command lines in the README, the pages and the notebooks."""
    found = set()
    pages = [paths.ROOT / "README.md", *sorted((paths.ROOT / "book").glob("*.md"))]
    texts = [page.read_text(encoding="utf-8").replace("\\\n", " ") for page in pages]
    for notebook in sorted(paths.NOTEBOOKS.glob("*.ipynb")):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        texts += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    for text in texts:
        found |= set(re.findall(r"^(?:python -m )?(rmutils .*)$", text, re.M))
    return sorted(found)


@pytest.mark.parametrize("commands", [stored_commands, shown_commands])
def test_all_spellings_are_understood(parse, commands):
    for command in commands():
        words = shlex.split(command, comments=True)[1:]
        if words and words[0] not in OTHERS and "--list" not in words and "--help" not in words:
            parse(words)


@pytest.mark.parametrize(("words", "config"), [
    (("detect", "tiny-llama"), DetectConfig(lengths=(256, 512, 768), depths=(0.5,), needles=2,
                                            definition="wu")),
    (("retmask", "tiny-llama"), RetMaskConfig().changed({
        "strategy": "rc-removed", "detect.lengths": (256,), "recipe.learning_rate": 5e-6,
        "recipe.betas": (0.8, 0.9), "recipe.thinking": False, "responses.heads": ((0, 1), (2, 3)),
        "synthesizer": "tiny-qwen3"})),
    (("evaluate", "tiny-llama"), EvaluateConfig(lengths=(512,), thinking=True, chat=False)),
    (("variants", "answers", "tiny-llama"), VariantConfig(
        variant=MsPoe(s_max=4), masked=((0, 1),), needles=None, texts=TextsConfig(count=2)))])
def test_what_command_line_writes_is_read(parse, words, config):
    given = parse(shlex.split(command_line(*words, config=config))[1:])
    found = given.get("config") or type(config)().changed(given["changes"])
    assert found == config


@pytest.mark.parametrize("words", [
    ["--recipe.learning-rate", "5e-6"], ["--recipe.learning_rate", "5e-6"],
    ["-p", "recipe.learning_rate", "5e-6"], ["-p", "recipe.learning-rate=5e-6"],
    ["--recipe", "embedded", "--recipe.learning-rate=5e-6"]])
def test_spellings_of_one_option(parse, words):
    assert parse(["retmask", "tiny-llama", *words])["config"].recipe.learning_rate == 5e-6


def test_a_recipe_by_its_name(parse):
    words = ["retmask", "tiny-llama", "--recipe", "smoke"]
    assert parse(words)["config"].recipe == RECIPES["smoke"]
    more = parse([*words, "--recipe.seed", "3"])["config"].recipe
    assert more == RECIPES["smoke"].changed({"seed": 3})


def test_a_name_that_only_the_notebook_knows(parse):
    assert parse(["run", "01_preliminaries", "--tau", "0.05", "-p", "lengths", "256,512"]) == {
        "tau": 0.05, "lengths": [256, 512]}


@pytest.mark.parametrize(("words", "message"), [
    (["retmask", "tiny-llama", "--recipe.learnin-rate", "1"], "--recipe.learning-rate"),
    (["pairs", "tiny-llama", "--out", "x", "-p", "temporature", "1"], "Did you mean temperature?"),
    (["detect", "tiny-llama", "-p", "tau"], "as -p NAME VALUE"),
    (["detect", "tiny-llama", "--needles", "2", "-p", "needles", "3"], "needles is given twice"),
    (["retmask", "tiny-llama", "--recipe", "mine"], "'mine' is no recipe: one of paper, embedded"),
    (["paper", "tables", "--table", "x"], "expected a whole number, got 'x'"),
    (["paper", "tables", "--source", "fr"], "'--source': 'fr' is not one of 'en', 'ja'. "),
    (["run", "01_preliminaries", "-p", "tau", "x"], "is no float: expected a number, got 'x'"),
    (["run", "01_preliminaries", "--output", "."], "Give a file that ends in .ipynb"),
    (["study", "--project", "nowhere"], "--project nowhere: no such folder"),
    (["run", "01_preliminaries", "--tua", "1"], "Did you mean tau?")])
def test_what_is_not_understood(words, message):
    done = CliRunner().invoke(cli.app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 2 and message in done.stderr, done.output
