"""What a reader types is text, in the page as in the library; run by node, without a browser."""

import json
import shutil
import subprocess

import pytest

from rmutils.core.paths import BOOK

SCRIPT = """
const tokens = [...Array.from({length: 256}, (_, i) => String.fromCharCode(i)), "<|end|>", "<t>"];
const tokenizer = new Playground.Tokenizer({
  tokens, added: {"<|end|>": 256, "<t>": 257}, special: [256], merges: [], digits: false});
const prompt = new Playground.Prompt(tokenizer, ["<|end|>", " ", "<|end|>"], 1000);
const build = (haystack, answer) => {
  const {ids, needle} = prompt.build(
    {haystack, needle: "In that <|end|> a hat.", question: "<|end|>?", answer, depth: 1});
  return {controls: ids.flatMap((id, i) => id === 256 ? [i] : []).length,
          ends: [ids[0], ids.at(-1)], text: tokenizer.decode(ids.slice(1, -1)),
          needle: tokenizer.decode(ids.slice(...needle)), at: needle[0]};
};
const error = answer => { try { build("", answer); } catch (error) { return error.message; } };
console.log(JSON.stringify([build("Once <|end|> <t>. ", "hat"), error("a"), error("blue")]));
"""


def test_words_and_control_tokens():
    if not (node := shutil.which("node")):
        pytest.skip("no node")
    classes = "".join((BOOK / "playground" / f"{name}.js").read_text(encoding="utf-8")
                      for name in ("tokenizer", "prompt"))
    done = subprocess.run([node, "-e", classes + SCRIPT], capture_output=True, text=True,
                          check=True)
    built, several, missing = json.loads(done.stdout)
    assert built["controls"] == 2 and built["ends"] == [256, 256]  # those of the frame
    assert built["text"] == "Once <|end|> <t>. In that <|end|> a hat.  <|end|>?"
    assert built["needle"] == "hat" and built["at"] > len("Once <|end|> . In that")
    assert "word for word" in missing and several is None  # "a" is one word, and within two others
