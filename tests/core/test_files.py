"""Tables in several formats; advice that fits why a folder cannot be written."""

import errno
import os
from pathlib import Path

import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.core.files import TABLES, keeping, read_table, write_table
from rmutils.core.paths import cache_dir

TABLE = pd.DataFrame({
    "prompt": ["1", "two\nlines\r\n", '"quoted", and a comma', "=sum", "N/A", "", "日本語"],
    "tokens": range(7), "finished": [True, False] * 3 + [True]})


@pytest.mark.parametrize("ending", TABLES)
def test_tables_come_back_as_they_were(tmp_path, ending):
    write_table(TABLE, tmp_path / f"table{ending}")
    back = read_table(tmp_path / f"table{ending}", text=["prompt"])
    pd.testing.assert_frame_equal(back, TABLE)


def test_other_endings_are_refused(tmp_path):
    for use in (read_table, lambda path: write_table(TABLE, path)):
        with pytest.raises(UserError, match=r"table.xlsx: .*\.parquet, \.jsonl or \.csv"):
            use(tmp_path / "table.xlsx")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", '{"a": 1}\n{', "[1, 2]\n", "\xff"])
@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
def test_broken_tables(tmp_path, ending, text):
    path = tmp_path / f"broken{ending}"
    path.write_text(text, encoding="latin-1")
    if (ending, text) == (".jsonl", ""):
        assert read_table(path).empty
        return
    with pytest.raises(UserError, match=f"is not a {ending[1:]} file"):
        read_table(path)


def test_advice_fits_the_folder(cache, tmp_path):
    """One real attempt in `/sys`, which has no size; a full disk below the cache and elsewhere."""
    with pytest.raises(UserError, match=r"cannot be written .*Choose another folder"), \
            keeping(Path("/sys/rmutils"), "writing"):
        os.mkdir("/sys/rmutils")
    for folder, advice in ((cache_dir() / "artifacts", "RMUTILS_CACHE"),
                           (tmp_path / "out", "choose a folder on another disk")):
        with pytest.raises(UserError, match=f"is full.*{advice}"), keeping(folder, "writing"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
