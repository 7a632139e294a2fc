"""Plug-ins are known by every process, and results tell which of their code they used."""

import json
import multiprocessing
import os
import re
import shutil
import sys
import tomllib

import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.attention.variants import VARIANTS, Plain
from rmutils.book.chapters.retrieval_heads_under_change.experiment import HeadsConfig
from rmutils.book.experiments.under_variants import VariantConfig
from rmutils.book.jobs.plan import plan
from rmutils.book.jobs.studies import Study
from rmutils.core import registry
from rmutils.core.errors import UserError
from rmutils.core.paths import ROOT
from rmutils.core.registry import Registry
from rmutils.core.results import Stage
from rmutils.evaluation.abilities.ability_tasks import TASKS
from rmutils.evaluation.abilities.evaluate_abilities import GeneralConfig
from rmutils.evaluation.helmet import EvaluateConfig
from rmutils.evaluation.helmet.metrics import METRICS
from rmutils.evaluation.helmet.suite import DATASETS
from rmutils.heads.detection import DetectConfig
from rmutils.heads.score_kinds import SCORES
from rmutils.models.families import FAMILIES
from rmutils.pipeline.retmask import RetMaskConfig
from rmutils.preference.responses import BACKENDS
from rmutils.preference.strategies import STRATEGIES
from rmutils.training.compute_backend import ComputeBackend
from tests.test_interface import snippets

REGISTRIES = BACKENDS, DATASETS, FAMILIES, METRICS, SCORES, STRATEGIES, TASKS, VARIANTS
EXAMPLE = ROOT / "examples" / "toy_plugin" / "toy_plugin.py"
TASK = '''
from rmutils.evaluation.abilities.ability_tasks import ability


@ability("toy", "world")
def toy(count, seed):
    return []
'''
CODE = "\n".join([*snippets("CONTRIBUTING.md").values(), TASK])
STAGE = Stage("asked", 1)


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Registries, and what is loaded, are as before afterwards."""
    for each in REGISTRIES:
        len(each)
        monkeypatch.setattr(each, "_known", {**each._known})
        monkeypatch.setattr(each, "_origins", {})
    monkeypatch.setattr(Registry, "outside", set())
    monkeypatch.setattr(registry, "_loaded", {})
    monkeypatch.setenv(registry.PLUGINS, "")
    yield
    forget()


def load(folder, code):
    (folder / "mine.py").write_text(code)
    registry.load_plugins(str(folder / "mine.py"))


def forget():
    for each in REGISTRIES:
        each._known = {name: thing for name, thing in each._known.items()
                       if name not in each._origins}
    registry._loaded.clear()
    for module in [name for name in sys.modules if name.startswith("plugin_")]:
        del sys.modules[module]


ASKED = {
    "strategy": lambda: RetMaskConfig(strategy="first-layer"),
    "score": lambda: DetectConfig(score="sink"),
    "score within": lambda: RetMaskConfig(detect=DetectConfig(score="sink")),
    "variant": lambda: VariantConfig.model_validate({"variant": {"kind": "headless"}}),
    "one of several variants": lambda: HeadsConfig.model_validate(
        {"variants": {"plain": Plain(), "mine": {"kind": "headless"}}}),
    "data set": lambda: EvaluateConfig(datasets=("toy",)),
    "task": lambda: GeneralConfig(tasks=("toy",)),
}


def test_an_edited_plug_in_does_not_find_its_old_results(tmp_path):
    load(tmp_path, CODE)
    before = {name: STAGE.key(make(), {}) for name, make in ASKED.items()}
    backend, jobs = ComputeBackend(engine="echo").inputs(), planned()
    forget()
    load(tmp_path, CODE)
    assert before == {name: STAGE.key(make(), {}) for name, make in ASKED.items()}
    assert jobs == planned()
    forget()
    load(tmp_path, CODE + "# edited\n")
    after = {name: STAGE.key(make(), {}) for name, make in ASKED.items()}
    assert not {*before.values()} & {*after.values()} and len({*after.values()}) == len(ASKED)
    assert ComputeBackend(engine="echo").inputs() != backend
    assert [name.split("/")[0] for name in set(jobs) - set(planned())].count("train") == 1


def planned():
    runs = [RetMaskConfig(strategy=name, tau=0.1) for name in ("first-layer", "retmask")]
    return sorted(plan(Study({"tiny-llama": runs}, {"tiny-llama": []})))


def test_other_results_are_found_as_before(tmp_path):
    asked = (RetMaskConfig(), DetectConfig(), VariantConfig(), HeadsConfig(), EvaluateConfig(),
             GeneralConfig())
    before = [STAGE.key(config, {}) for config in asked]
    load(tmp_path, CODE)
    assert before == [STAGE.key(config, {}) for config in asked]
    assert not any(config.outside() for config in asked)


def test_a_metric_counts_with_the_data_set_that_uses_it(tmp_path):
    load(tmp_path, CODE)
    assert {*EvaluateConfig(datasets=("toy", "summary")).outside()} == {
        "data set toy", "metric length_of_answer"}


ADD = "from rmutils.models.families import FAMILIES, Family\nFAMILIES.add({!r}, Family({!r}))\n"


@pytest.mark.parametrize(("code", "said"), [
    (None, "there is no plug-in .*mine.py: give a .py file, or the name of a module that Python"),
    ("import os\n\n1 / 0", "cannot be imported: ZeroDivisionError in line 3: division by zero."),
    ("import nothing_of_that_name", "ModuleNotFoundError in line 1: No module named"),
    ("raise SystemExit", "cannot be imported: SystemExit in line 1"),
    ("def f(:", "cannot be imported: SyntaxError: invalid syntax"),
    (ADD.format("llama", "x"), "mine.py: there is a model family 'llama' already; choose another"),
])
def test_what_cannot_be_loaded_is_told_in_a_sentence(tmp_path, monkeypatch, code, said):
    monkeypatch.chdir(tmp_path)
    if code is not None:
        (tmp_path / "mine.py").write_text(code)
    done = CliRunner().invoke(app, ["--plugin", "mine.py", "models", "list"])
    assert done.exit_code == 2 and not done.stdout
    assert done.stderr.startswith("rmutils: ") and done.stderr.count("\n") == 1
    assert re.search(said, done.stderr), done.stderr


@pytest.mark.parametrize(("name", "what"), [
    ("pipe.py", "a pipe or a device"), ("zero.py", "a pipe or a device"), ("folder.py", "a folder"),
    ("/dev/zero", "a pipe or a device")])
def test_what_never_ends_is_not_read(tmp_path, monkeypatch, name, what):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.py")
    os.symlink("/dev/zero", "zero.py")
    os.mkdir("folder.py")
    done = CliRunner().invoke(app, ["--plugin", name, "models", "list"])
    assert done.exit_code == 2 and f"{name} cannot be read: it is {what}." in done.stderr


def test_a_plug_in_is_answered_for_by_itself(tmp_path):
    """Not by one that was given before; and may be given again once it is mended."""
    with pytest.raises(UserError, match="ZeroDivisionError"):
        load(tmp_path, "1 / 0")
    with pytest.raises(UserError, match="there is no plug-in"):
        registry.load_plugins(str(tmp_path / "other.py"))
    load(tmp_path, "")


def test_a_file_that_is_given_twice_and_a_cell_that_runs_again(tmp_path):
    """The same content counts once; only a notebook's cell may replace what it has added."""
    load(tmp_path, ADD.format("mine", "Mine"))
    (tmp_path / "copy.py").write_text(ADD.format("mine", "Mine"))
    registry.load_plugins(str(tmp_path / "copy.py"))
    assert os.environ[registry.PLUGINS].split(os.pathsep) == [
        str(tmp_path / name) for name in ("mine.py", "copy.py")]
    for title in "first", "second":
        exec(ADD.format("cell", title), {"__name__": "__main__"})
    assert FAMILIES["cell"].title == "second"


def test_packages_are_hashed_whole(tmp_path, monkeypatch):
    """And told by their distribution, however they were imported."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "__init__.py").write_text(ADD.format("whole", "Whole"))
    info = tmp_path / "whole-2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: whole\nVersion: 2\n")
    (info / "entry_points.txt").write_text("[rmutils.families]\nwhole = whole\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for helper in "x = 1", "x = 2":
        (tmp_path / "whole" / "helper.py").write_text(helper)
        for cached in registry._package_digest, registry._release:
            cached.cache_clear()
        forget()
        monkeypatch.delitem(sys.modules, "whole", raising=False)
        registry.load_plugins("whole")
        found += FAMILIES.origins(["whole"]).values()
    assert found[0] != found[1] and all(one.startswith("whole 2 sha256:") for one in found)


def test_the_example(tmp_path, cache, monkeypatch):
    """A data set of a plug-in, whose code the manifest tells; who names the plug-in in the
    environment finds the result."""
    file = tmp_path / "toy_plugin.py"
    shutil.copy(EXAMPLE, file)
    words = ["evaluate", "tiny-llama", "--datasets", "toy", "--lengths", "150,200", "--samples",
             "1", "--json"]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["--plugin", file.name, *words])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert "Toys" in {row["name"] for row in found["averages"]}
    manifest = json.loads((cache / "artifacts" / found["artifact"] / "manifest.json").read_text())
    assert {"data set toy", "metric length_of_answer"} < {*manifest["inputs"]}
    assert manifest["command"].startswith("rmutils --plugin toy_plugin.py evaluate tiny-llama")
    forget()
    monkeypatch.setenv("RMUTILS_PLUGINS", str(file))
    again = CliRunner().invoke(app, [*words, "--compute", "never"])
    assert json.loads(again.stdout)["artifact"] == found["artifact"]


def test_its_entry_points_name_all_registries_that_it_adds_to():
    project = tomllib.loads(EXAMPLE.with_name("pyproject.toml").read_text())["project"]
    registry.load_plugins(str(EXAMPLE))
    assert {*project["entry-points"]} == {r.group for r in REGISTRIES if r._origins}
    assert {name for points in project["entry-points"].values()
            for name in points.values()} == {EXAMPLE.stem}


def test_a_worker_says_what_it_cannot_know(monkeypatch):
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    with pytest.raises(UserError, match="but not a notebook's own: .* RMUTILS_PLUGINS"):
        STRATEGIES["of a notebook"]
