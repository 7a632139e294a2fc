"""The hub's data sets, read from copies in folders; a hub that refuses."""

import json

import datasets
import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmutils.core.errors import UserError
from rmutils.preference.instructions import draw
from tests.servers import Answering, serving

CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*
dataset_info:
  features:
  - {name: conversation_id, dtype: string}
  - {name: conversation, list: [{name: content, dtype: string}, {name: role, dtype: string}]}
  - {name: language, dtype: string}
  - {name: openai_moderation, list: [{name: flagged, dtype: bool}]}
  - {name: redacted, dtype: bool}
  splits:
  - {name: train, num_examples: 1000000}
---
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Copies of data sets; whoever asks the hub instead fails."""
    monkeypatch.setenv("RMUTILS_DATASETS", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets.config, "SLEEP_TIME_ON_THREADS_SHUTDOWN", 0)
    return tmp_path


def save(path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def chat(*turns: str) -> list[dict]:
    return [{"content": turn, "role": role}
            for turn, role in zip(turns, ("user", "assistant") * 2, strict=False)]


def lmsys_row(number: int, text: str, *, redacted=False, flagged=False, language="English"):
    return {"conversation_id": str(number), "conversation": chat(text, "An answer.", "More."),
            "language": language, "redacted": redacted,
            "openai_moderation": [{"flagged": False}, {"flagged": flagged}, {"flagged": False}]}


def texts(drawn) -> set[str]:
    return {instruction.text for instruction in drawn.instructions}


def dropped(source: str, kept: int) -> str:
    """What is counted when all rows are read: the message about one instruction too many."""
    with pytest.raises(UserError, match=f"only {kept} are left") as told:
        draw(source, kept + 1)
    return str(told.value)


def test_lmsys(home):
    """A copy with its card, in two files: first turns; what the publishers marked is left out."""
    folder = home / "lmsys/lmsys-chat-1m"
    save(folder / "data/train-00000-of-00002.parquet", [
        lmsys_row(0, "Sing."), lmsys_row(1, "Redacted.", redacted=True), lmsys_row(2, " "),
        lmsys_row(3, "Offensive.", flagged=True), lmsys_row(4, "Chante.", language="French"),
        lmsys_row(5, "Sing. "), lmsys_row(6, "Greet NAME_1.")])
    save(folder / "data/train-00001-of-00002.parquet", [
        lmsys_row(7, "歌って。", language="Japanese"), lmsys_row(8, "Mail ann@example.org.")])
    (folder / "README.md").write_text(CARD)
    assert texts(draw("lmsys", 2)) == {"Sing.", "歌って。"}
    told = dropped("lmsys", 2)
    assert "of 9 (dropped: 2 redacted" in told
    assert all(f"1 {why}" in told for why in ("empty", "toxic", "language", "duplicate", "pii"))


def test_guru(home):
    """Its files have other columns each, in another order within a message, and a test split."""
    for name, columns, order in (("train/math__a", ("extra_info",), ("role", "content")),
                                 ("train/logic__b", ("query", "meta"), ("content", "role")),
                                 ("online_eval/math__c", ("extra_info",), ("role", "content"))):
        save(home / f"LLM360/guru-RL-92k/{name}.parquet", [
            {"prompt": [{key: {"role": "user", "content": f"{name} {i}"}[key] for key in order}],
             **dict.fromkeys(columns, i)} for i in range(3)])
    assert texts(draw("guru", 6)) == {f"train/{n} {i}" for n in ("math__a", "logic__b")
                                      for i in range(3)}


def test_wildchat_as_jsonl(home):
    rows = [{"conversation": chat(f"Count to {i}.", "1"), "toxic": i == 3, "redacted": i == 4,
             "language": "Latin"} for i in range(30)]
    (home / "allenai/WildChat").mkdir(parents=True)
    (home / "allenai/WildChat/part.jsonl").write_text("\n".join(map(json.dumps, rows)))
    all_but_marked = {f"Count to {i}." for i in range(30)} - {"Count to 3.", "Count to 4."}
    assert texts(draw("wildchat", 28)) == all_but_marked
    assert "1 toxic" in (told := dropped("wildchat", 28)) and "1 redacted" in told
    some, same, other = (draw("wildchat", 10, seed=seed) for seed in (1, 1, 2))
    assert some == same and texts(some) != texts(other)


def test_folder_of_another_data_set(home):
    (home / "allenai/WildChat").mkdir(parents=True)
    (home / "allenai/WildChat/a.jsonl").write_text('{"text": "a", "toxic": false}')
    with pytest.raises(UserError, match="WildChat could not be read: no column 'conversation'"):
        draw("wildchat", 1)
    save(home / "allenai/WildChat/a.parquet", [{"text": "a", "toxic": False}])
    with pytest.raises(UserError, match=r"WildChat could not be read: .*\bconversation\b"):
        draw("wildchat", 1)


def test_damaged_folder(home):
    path = home / "allenai/WildChat/a.parquet"
    save(path, [{"conversation": chat("Sing."), "toxic": False, "redacted": False}])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"allenai/WildChat could not be read: .*\"world\""):
        draw("wildchat", 1)


@pytest.fixture
def hub(home, monkeypatch):
    """A hub that refuses, with the status and the error code that it is given."""
    class Handler(Answering):
        def do_GET(self):  # noqa: N802
            self.server.asked.append(self.path)
            self.send(b"", self.server.status, X_Error_Code=self.server.code)

    with serving(Handler, asked=[]) as server:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
        yield server


@pytest.mark.parametrize("status, code, message", [
    (401, "GatedRepo", "is gated. Ask for access on the page of `lmsys/lmsys-chat-1m` on the "
                       "Hugging Face hub, then `hf auth login`"),
    (403, "GatedRepo", "is gated"),
    (404, "RepoNotFound", "is not on the hub any more, or your token is not valid"),
    (500, "", "cannot be reached"),
])
def test_hub_refuses(hub, status, code, message):
    hub.status, hub.code = status, code
    with pytest.raises(UserError, match="lmsys/lmsys-chat-1m " + message) as told:
        draw("lmsys", 1)
    assert any(path.startswith("/api/datasets/lmsys/lmsys-chat-1m/") for path in hub.asked)
    assert '"self"' in str(told.value) and "http" not in str(told.value)


def test_no_network(home, monkeypatch):
    with pytest.raises(UserError, match="cannot be reached: no network .*`hf download allenai/Wild"
                                        "Chat --repo-type dataset --local-dir FOLDER/allenai/WildC"
                                        "hat`.*RMUTILS_DATASETS.*\"self\""):
        draw("wildchat", 1)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="cannot be reached: HF_HUB_OFFLINE is set"):
        draw("wildchat", 1)
