"""The tables of the other texts, against what they say of themselves."""

import shutil

import pytest

from rmutils.core.errors import UserError
from rmutils.paper.tables import COMPANIONS, PAPER, load_companions


def test_refused_when_damaged(tmp_path):
    folder = shutil.copytree(PAPER, tmp_path / "paper")
    path = folder / COMPANIONS.file
    path.write_text(path.read_text() + "ms-poe,Zero-SCROLLS,,Llama-2-13B,gain,much\n")
    with pytest.raises(UserError, match="companions.csv, line .*much"):
        load_companions(folder)
