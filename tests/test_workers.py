"""One process and three leave the same files."""

import json

import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.core import journal, results
from rmutils.evaluation.helmet.suite import DATASETS
from rmutils.preference.responses import Transformers


def files(stage: str) -> dict[str, bytes | dict]:
    """All that is stored of a stage, byte for byte, but for the times."""
    [artifact] = results.stored(stage)
    found = {path.name: path.read_bytes() for path in artifact.folder.iterdir()}
    manifest = json.loads(found.pop(results.MANIFEST))
    assert artifact.problems() == [] and manifest.pop("seconds") > 0
    del manifest["environment"]["created"], manifest["sha256"]
    return {**found, results.MANIFEST: manifest}


@pytest.mark.parametrize(("stage", "words"), [
    ("responses", ("generate", "--count", "30", "--max-new-tokens", "6", "--source", "world")),
    ("evaluation", ("evaluate", "--datasets", ",".join([*DATASETS][:4]), "--lengths", "300,400",
                    "--samples", "2", "--shots", "0")),
])
def test_any_number_of_workers_gives_the_same(tiny, tmp_path, monkeypatch, stage, words):
    monkeypatch.setattr(Transformers, "together", 4)
    left, shares = {}, []
    share = journal._share
    monkeypatch.setattr(journal, "_share",
                        lambda *given: shares.append(given[-1]) or share(*given))
    for count in (1, 3):
        monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / f"by {count}"))
        done = CliRunner().invoke(app, [words[0], str(tiny), *words[1:], "--workers", str(count)])
        assert done.exit_code == 0, done.output
        left[count] = files(stage)
    assert shares == [slice(k, None, 3) for k in range(3)]
    assert left[1] == left[3]
