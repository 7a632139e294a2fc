"""The strict papermill front: what it reads, accepts and refuses."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from rmutils.core.errors import UserError
from rmutils.book.site.notebooks import run_notebook
from rmutils.book.site.parameters import check_parameters, describe, from_folder, read_parameters

CELL = '''
from pathlib import Path
from typing import Literal

tau: float = 0.1  # threshold
seed: int = 0  # of the random heads
exact: bool = False
lengths: list[int] = [256, 512]  # prompt lengths # in tokens
# several
# where the needle is, é
depths: list[float] = [
    0.0,  # start
    1.0,
]
compute: Literal["auto", "always", "never"] = "auto"  # when to run
folder: Path | None = None  # own haystack
name: str = "a # b"
'''


def write(path, cell: str, *code: str):
    cells = [new_markdown_cell("# Title"), new_code_cell(cell, metadata={"tags": ["parameters"]})]
    nbformat.write(new_notebook(cells=cells + [new_code_cell(c) for c in code]), path)
    return path


@pytest.fixture
def notebook(tmp_path):
    return write(tmp_path / "nb.ipynb", CELL, "print(tau, lengths, compute, folder, name, exact)")


def test_declaration_is_read_with_types_defaults_and_comments(notebook):
    found = read_parameters(notebook)
    assert [(p.name, p.annotation, p.default, p.comment) for p in found.values()] == [
        ("tau", "float", 0.1, "threshold"),
        ("seed", "int", 0, "of the random heads"),
        ("exact", "bool", False, ""),
        ("lengths", "list[int]", [256, 512], "prompt lengths # in tokens"),
        ("depths", "list[float]", [0.0, 1.0], "where the needle is, é"),
        ("compute", "Literal['auto', 'always', 'never']", "auto", "when to run"),
        ("folder", "Path | None", None, "own haystack"),
        ("name", "str", "a # b", ""),
    ]


def test_a_value_tells_its_type(tmp_path):
    """As in notebooks for papermill; a type that is wrong is refused all the same."""
    own = write(tmp_path / "nb.ipynb", "alpha = 0.1  # rate\nn = 3\non = True\nwho = 'a'\n"
                "some = [1, 2.5]\ntexts: list[str] = []")
    assert [(p.name, p.annotation, p.default, p.comment) for p in read_parameters(own).values()] \
        == [("alpha", "float", 0.1, "rate"), ("n", "int", 3, ""), ("on", "bool", True, ""),
            ("who", "str", "a", ""), ("some", "list[float]", [1, 2.5], ""),
            ("texts", "list[str]", [], "")]
    assert check_parameters(own, {"alpha": "0.2", "some": "3"}) == {"alpha": 0.2, "some": [3.0]}
    with pytest.raises(UserError, match="n = '2.5' is no int"):
        check_parameters(own, {"n": "2.5"})


@pytest.mark.parametrize(("name", "given", "parsed"), [
    ("tau", "0.05", 0.05), ("tau", "1", 1.0), ("tau", 1, 1.0), ("tau", "1e-2", 0.01),
    ("seed", "7", 7), ("exact", "true", True), ("exact", "no", False), ("exact", True, True),
    ("lengths", "256,1024", [256, 1024]), ("lengths", "[1, 2]", [1, 2]), ("lengths", "9", [9]),
    ("lengths", [3], [3]), ("compute", "never", "never"),
    ("folder", "my texts", "my texts"), ("folder", "None", None), ("folder", None, None),
    ("name", "None", "None"), ("name", "1,2", "1,2"),
])
def test_text_and_values_become_the_declared_type(notebook, name, given, parsed):
    assert check_parameters(notebook, {name: given}) == {name: parsed}


@pytest.mark.fault("parameter", "of another type")
@pytest.mark.parametrize(("name", "given"), [
    ("tau", "high"), ("tau", "0.1,0.2"), ("tau", "nan"), ("tau", True), ("tau", [0.1]),
    ("seed", "true"), ("tau", "false"), ("lengths", "[true]"), ("seed", "1.5"), ("seed", 1.0), ("seed", ""), ("exact", "perhaps"), ("exact", 1),
    ("lengths", "256,many"), ("lengths", 256), ("lengths", '{"a": 1}'),
    ("compute", "sometimes"), ("name", 3), ("folder", 3),
])
def test_wrong_type_is_refused_with_the_list_of_parameters(notebook, name, given):
    with pytest.raises(UserError) as error:
        check_parameters(notebook, {name: given})
    assert f"{name} = {given!r}" in str(error.value)
    assert describe(read_parameters(notebook)) in str(error.value)


def test_unknown_parameter_starts_nothing(notebook, tmp_path):
    with pytest.raises(UserError, match="no parameter 'taus'. Did you mean tau"):
        run_notebook(notebook, tmp_path / "out" / "nb.ipynb", {"taus": "1", "seed": "2"})
    assert not (tmp_path / "out").exists()


@pytest.mark.fault("parameter", "declared with code that would do something")
@pytest.mark.parametrize(("line", "problem"), [
    ("tau = None", "is not of the form"),
    ("tau = []", "is not of the form"),
    ("taus = [1, 'a']", "is not of the form"),
    ("a = b = 1", "is not of the form"),
    ("tau = open('x')", "cannot use"),
    ("tau: float", "is not of the form"),
    ("tau: float = 'high'", "cannot use"),
    ("tau: Tensor = 1", "cannot use"),
    ("tau: float = open('x')", "cannot use"),
    ("%matplotlib inline", "is not Python"),
])
def test_unusable_declaration_names_notebook_and_line(tmp_path, line, problem):
    notebook = write(tmp_path / "nb.ipynb", line)
    with pytest.raises(UserError, match=problem) as error:
        read_parameters(notebook)
    assert "nb.ipynb" in str(error.value)
    assert line in str(error.value) or "line 1" in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"not json", b"\xff\xfe\x00", b'{"cells": 3}'])
def test_file_that_is_no_notebook(tmp_path, content):
    (tmp_path / "nb.ipynb").write_bytes(content)
    with pytest.raises(UserError, match="is not a notebook"):
        read_parameters(tmp_path / "nb.ipynb")


def test_paths_are_those_of_the_shells_folder(notebook, tmp_path):
    for name in ("mine", "tiny-llama"):
        (tmp_path / name).mkdir()
    given = {"folder": "mine", "tau": 1.0, "compute": "auto", "name": "other", "lengths": [1]}
    assert from_folder(notebook, given, tmp_path) == given | {"folder": str(tmp_path / "mine")}
    assert from_folder(notebook, {"name": "tiny-llama"}, tmp_path) == {"name": "tiny-llama"}
