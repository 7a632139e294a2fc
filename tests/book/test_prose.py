"""Pages that are converted keep to the form of a page; no code composes sentences any more."""

import ast
import re

from rmutils.core import paths
from tests.notebooks.test_chapters import read

CONVERTED = (
    "01_preliminaries", "02_masking_sweep", "03_main_tables", "04_reasoning_ablation",
    "05_score_distribution", "06_training_effect", "07_general_abilities", "08_failure_modes",
    "09_data_and_training", "10_claims", "11_ms_poe", "12_share_attention",
    "13_select_attention", "14_olmo3_recipe", "15_retrieval_heads_under_change", "16_scale",
    "17_speed", "audit", "contrast_without_training", "guided_build", "heads_at_work",
    "is_it_causal", "memory_by_heads", "provenance", "redirect_heads", "teaching_models",
    "the_method", "which_heads", "your_own_model")
"""Notebooks whose prose is written by hand and says findings. The list grows."""
COMPOSED = 18
"""Functions that still compose sentences. The number only falls."""
SENTENCE, BOX, PAGE, BEFORE_FIGURE = 35, 80, 1500, 300
"""Most words of a sentence, of the box on top, before the exercises, before the first figure."""
RETURNS = ("str", "list[str]", "Iterator[str]", "str | None")
MARKUP = re.compile(
    r"^:{3,}.*$|^:\w[\w-]*:.*$|^\([\w-]+\)=$|^```.*$|\]\(#[\w-]+\)|\{[\w:]+\}(?=`)|[*`|\[\]]", re.M)


PAGES = {name: read(paths.NOTEBOOKS / f"{name}.ipynb").cells for name in CONVERTED}


def said(cell) -> list[str]:
    """The texts that a code cell says, as they are written; an interval counts as it is shown."""
    if cell.cell_type != "code":
        return []
    texts = [node.args[0].value for node in ast.walk(ast.parse(cell.source))
             if isinstance(node, ast.Call) and ast.unparse(node.func) == "say"]
    return [text.replace(":ci}", "} ci to ci") for text in texts]


def words(text: str) -> int:
    return len(re.findall(r"[^\s—–-]*\w[^\s]*", MARKUP.sub(" ", text)))


def sentences(text: str) -> list[str]:
    """Sentences, items and headings; the paper's words are its own."""
    plain = MARKUP.sub(" ", re.sub(r'"[^"]*"|\{[\w:]+\}`[^`]*`', "X", text))
    parts = re.split(r"(?<=[.?!:])\s+(?=[A-Z{])|\n\s*(?:[-#]|\n)", plain)
    return [one for one in parts if one.strip()]


def is_box(cell) -> bool:
    return cell.cell_type == "code" and "what_we_found(" in cell.source


def before_exercises(cells):
    for cell in cells:
        text, exercises, _ = cell.source.partition("## Exercises")
        yield [text] if cell.cell_type == "markdown" else said(cell)
        if exercises:
            return


def test_sentences_are_short_and_have_one_interval_at_most():
    every = [one for cells in PAGES.values() for texts in before_exercises(cells)
             for text in texts for one in sentences(text)]
    assert not [one for one in every if words(one) > SENTENCE]
    assert not [one for one in every if one.count("ci to ci") > 1]


def test_page_and_box_are_short_and_a_figure_comes_early():
    for name, cells in PAGES.items():
        counts = [sum(map(words, texts)) for texts in before_exercises(cells)]
        assert sum(counts) <= PAGE, name
        box, = (sum(map(words, said(cell))) for cell in cells if is_box(cell))
        assert box <= BOX, name
        first = next(i for i, cell in enumerate(cells)
                     if "figure" in cell.metadata.get("mystnb", {}))
        assert sum(counts[:first]) <= BEFORE_FIGURE, name


def test_every_number_with_an_interval_is_a_finding():
    """Tables show columns of intervals; prose has no number but what `say` is given."""
    calls = [(page, cell.id, node) for page, cells in PAGES.items() for cell in cells
             if cell.cell_type == "code" for node in ast.walk(ast.parse(cell.source))
             if isinstance(node, ast.Call)]
    for *place, node in calls:
        name = ast.unparse(node.func)
        assert name not in ("report.number", "Markdown"), place
        if name == "report.say":  # nothing but what is missing, and how to make it
            assert "made by" in ast.unparse(node), place


def test_what_cells_show_has_no_roles():
    """Only prose cells are read by MyST; in an output a role would stand as it is typed."""
    assert not [(page, cell.id) for page, cells in PAGES.items() for cell in cells
                if cell.cell_type == "code" and re.search(r"\{(ref|doc|cite\S*)\}+`", cell.source)]


def composed() -> list[str]:
    """Functions that return a sentence put together from eight words or more."""
    found = []
    book = paths.ROOT / "rmutils" / "book"
    for path in sorted({*book.rglob("*.py")} - {*(book / "findings").rglob("*.py")}):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(
                    node.returns) in RETURNS and sum(map(_words_of, node.body)) >= 8:
                found.append(f"{path.name}: {node.name}")
    return found


def _words_of(statement: ast.stmt) -> int:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return 0  # the docstring
    return sum(len(re.findall(r"\b[a-z]{2,}\b", node.value))
               for node in _outside_errors(statement)
               if isinstance(node, ast.Constant) and isinstance(node.value, str)
               and node.value.count(" ") > 1 and not re.search(r"[<>{}]", node.value))  # markup


def _outside_errors(node: ast.AST):
    if isinstance(node, ast.Raise):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _outside_errors(child)


def test_fewer_and_fewer_functions_compose_sentences():
    found = composed()
    assert len(found) <= COMPOSED, found
