"""`rmutils report` on a small random model, and on models that it cannot examine."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.chapters.your_own_model import OwnModelConfig, fitted
from rmutils.core.errors import UserError
from rmutils.core.results import stored

SMALL = ["--lengths", "160", "--depths", "0.5", "--needles", "2", "--counts", "2", "--draws", "1",
         "--samples", "1", "--tau", "0.0001", "--sweep.needles", "2", "--sweep.short", "2",
         "--sweep.speeches", "2", "--sweep.max-new-tokens", "4"]
HOSTILE = "<img src=x onerror=alert(1)> & $x$"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["report", *map(str, words)])


def test_any_folder_becomes_a_page_and_a_second_call_computes_nothing(run, tiny):
    """Its name, which may be anything, stays text."""
    folder = tiny.rename(tiny.with_name(HOSTILE))
    result = run(folder, *SMALL)
    assert result.exit_code == 0, result.output
    page, = tiny.parent.glob("report-*.html")
    text = page.read_text(encoding="utf-8")
    assert "&lt;img src=x onerror=alert(1)&gt; &amp; $x$" in text
    assert "<img src=x" not in text and "<script" not in text and "http" not in text
    numbers = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert numbers["model"] == HOSTILE and numbers["needles"] == {"asked": 2, "found": 2}
    assert numbers["sweep"]["needles found"][0]["count"] == 0
    assert len(numbers["artifacts"]) == 2 == len([*stored()])
    for told in numbers["forecast"].values():
        assert told["is_forecast"] == (not told["reasons_against"])
    again = run(folder, *SMALL, "--out", "again.html", "--compute", "never")
    assert again.exit_code == 0, again.output
    assert (tiny.parent / "again.json").read_text() == page.with_suffix(".json").read_text()


def test_without_chat_template_there_is_no_sweep_and_no_forecast(run, tiny):
    (tiny / "chat_template.jinja").unlink()
    result = run(tiny, *SMALL, "--json")
    assert result.exit_code == 0, result.output
    numbers = json.loads(result.stdout)
    assert numbers["sweep"] == numbers["forecast"] == {}
    assert "without a chat template" in (tiny.parent / "report-tiny-model.html").read_text()


@pytest.mark.parametrize(("spoil", "told"), [
    (lambda folder: shutil.rmtree(folder), "no folder or .gguf file"),
    (lambda folder: (folder / "model.safetensors").unlink(), "needs config.json and *.safetensors"),
    (lambda folder: (folder / "chat_template.jinja").write_text("{{ raise_exception('no') }}"),
     "does not write a single user turn"),
])
def test_what_cannot_be_examined_is_said(run, tiny, spoil, told):
    spoil(tiny)
    result = run(tiny, *SMALL)
    assert result.exit_code == 2 and told in result.output


def test_what_a_window_has_no_room_for_is_left_out(llama):
    """The window is 1,024 tokens, there are 16 heads."""
    config = OwnModelConfig().changed({"detect.lengths": [256, 974, 975, 2048]})
    assert fitted(config, llama).detect.lengths == (256, 974)
    assert fitted(config, llama).sweep.counts == (4, 8, 16)
    with pytest.raises(UserError, match="Choose lengths up to 974"):
        fitted(config.changed({"detect.lengths": [2048]}), llama)
