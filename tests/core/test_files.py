"""Tables in several formats; advice that fits why a folder cannot be written."""

import errno
import hashlib
import os
from pathlib import Path

import pandas as pd
import pytest

from rmutils.core import files
from rmutils.core.errors import UserError
from rmutils.core.files import TABLES, keeping, read_table, read_text, write_table
from rmutils.core.paths import cache_dir
from rmutils.core.validation import parse_json

TABLE = pd.DataFrame({
    "prompt": ["1", "two\nlines\r\n", '"quoted", and a comma', "=sum", "N/A", "", "日本語"],
    "tokens": range(7), "finished": [True, False] * 3 + [True]})


@pytest.mark.parametrize("ending", TABLES)
def test_tables_come_back_as_they_were(tmp_path, ending):
    write_table(TABLE, tmp_path / f"table{ending}")
    back = read_table(tmp_path / f"table{ending}", text=["prompt"])
    pd.testing.assert_frame_equal(back, TABLE)


@pytest.mark.parametrize("ending", TABLES)
def test_a_table_that_finds_no_room_is_told(tmp_path, ending):
    """Answers took minutes, and are kept: only the file is written again."""
    (tmp_path / f"table{ending}").symlink_to("/dev/full")
    with pytest.raises(UserError, match="the disk of .* is full"):
        write_table(TABLE, tmp_path / f"table{ending}")


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
    with pytest.raises(UserError, match=f"is not a {ending[1:]} file|is not UTF-8"):
        read_table(path)


def test_a_line_of_commas_is_no_table(tmp_path):
    (path := tmp_path / "pairs.csv").write_text("," * 100_000 + "\n")
    with pytest.raises(UserError, match="names 100,001 columns"):
        read_table(path)


@pytest.mark.fault("foreign file", "a flipped byte in the schema of a parquet file")
def test_a_damaged_parquet_file_is_told(tmp_path):
    """Each byte behind the pages in turn: it is read, or refused."""
    TABLE.to_parquet(path := tmp_path / "pairs.parquet")
    good = path.read_bytes()
    refused = 0
    for place in range(len(good) // 2, len(good), 7):
        bad = bytearray(good)
        bad[place] ^= 255
        path.write_bytes(bad)
        try:
            read_table(path)
        except UserError as error:
            refused += "is not a parquet file" in str(error)
    assert refused > 20


@pytest.mark.fault("foreign file", "a pipe, a folder, a link that loops, or half a character")
def test_what_is_no_plain_text(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "latin").write_bytes(b"\xff")
    (tmp_path / "large").write_text("abcd")
    for name, said in (("pipe", "it is a pipe"), ("loop", "Too many levels"), (".", "a folder"),
                       ("none", "No such file"), ("\x00", "null"), ("x" * 300, "name too long"),
                       ("latin", "not UTF-8"), ("large", "larger than"), ("\ud800", "surrogates")):
        with pytest.raises(UserError, match=said):
            read_text(tmp_path / name, largest=3)


@pytest.mark.parametrize("text, said", [
    ('{"a": 1, "b": 2, "a": 3}', "'a' occurs twice"), ('"\\ud800"', "hex escape"),
    ('"\ud800"', "surrogates"), ("[" * 300 + "]" * 300, "recursion"), ("[" * 100_000, "recursion"),
    ("1 2", "trailing")])
def test_json_from_elsewhere(text, said):
    with pytest.raises(ValueError, match=said):
        parse_json(text)
    assert parse_json('{"a": {"a": "\\ud83d\\ude00"}, "b": [NaN]}')["a"] == {
        "a": "\N{GRINNING FACE}"}


def test_advice_fits_the_folder(cache, tmp_path):
    """One real attempt in `/sys`, which has no size; a full disk below the cache and elsewhere."""
    with pytest.raises(UserError, match=r"cannot be written .*Choose another folder"), \
            keeping(Path("/sys/rmutils"), "writing"):
        os.mkdir("/sys/rmutils")
    for folder, advice in ((cache_dir() / "artifacts", "RMUTILS_CACHE"),
                           (tmp_path / "out", "choose a folder on another disk")):
        with pytest.raises(UserError, match=f"is full.*{advice}"), keeping(folder, "writing"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fresh", [2, -1])
def test_what_is_kept_of_a_file_follows_it(tmp_path, monkeypatch, fresh):
    """Known or not, of a file that is touched, replaced or gone it is taken anew."""
    monkeypatch.setattr(files, "FRESH", fresh)
    file, asked = tmp_path / "f", []
    read = files.of_file(lambda path: asked.append(path) or path.read_bytes())
    for number, data in enumerate((b"one", b"two", b"two")):
        file.write_bytes(data)
        os.utime(file, (number, number))
        assert files.sha256(file) == files.sha256(file) == hashlib.sha256(data).hexdigest()
        assert read(file) == read(file) == data
    assert len(asked) == (6 if fresh == 2 else 3)
    (tmp_path / "g").write_bytes(b"six")
    os.utime(tmp_path / "g", (number, number))
    os.replace(tmp_path / "g", file)
    assert read(file) == b"six"
    file.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        read(file)


@pytest.mark.parametrize("text", [
    "prompt,chosen\na,b,c\n", "prompt,chosen\na,b\n" + "," * 20_000, "prompt,chosen\na\n",
    "prompt,chosen,chosen\na,b,c\n", '[["prompt", "a"], ["prompt", "b"]]', '["ab", "cd"]'])
def test_nothing_in_a_table_is_shifted_filled_or_renamed(tmp_path, text):
    """pandas would take first cells for names of rows, fill a short line, and number a name that
    returns; `dict` takes a list of pairs for a record."""
    path = tmp_path / ("a.jsonl" if text.startswith("[") else "a.csv")
    path.write_text(text)
    with pytest.raises(UserError, match="cells|twice|no record"):
        read_table(path)


def test_a_long_cell_is_no_fault(tmp_path):
    """Python's reader stops at 131,072 characters unless it is told otherwise."""
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfprompt,chosen\n" + b"a" * 200_000 + b",b\n")
    assert len(read_table(tmp_path / "a.csv")["prompt"][0]) == 200_000
