"""What a model wrote is kept; what can be read again is not."""

import pytest

from rmutils.preference import instructions as drawing
from rmutils.preference.instructions import draw, draw_stored


def test_own_instructions_are_written_once(llama, monkeypatch):
    turns = [("Name a fish.", None), ("Hi", "too short"), ("Name a fish.", None),
             ("Name a tree.", None), ("Name a bird.", None)]
    monkeypatch.setattr(drawing, "synthesize", lambda *args: iter(turns))
    drawn, (artifact,) = draw_stored("self", 2, seed=0, lm=llama)
    assert [i.text for i in drawn.instructions] == ["Name a fish.", "Name a tree."]
    assert drawn.dropped == {"too short": 1, "duplicate": 1}
    assert artifact.manifest["facts"] == {"instructions": 2, "dropped": drawn.dropped}
    turns.clear()
    assert draw_stored("self", 2, seed=0, lm=llama) == (drawn, (artifact,))
    with pytest.raises(Exception, match="2 instructions are wanted"):
        draw_stored("self", 2, seed=1, lm=llama)


def test_the_world_is_not_kept(llama):
    drawn, kept = draw_stored("world", 5, seed=3, lm=llama)
    assert drawn == draw("world", 5, seed=3) and kept == ()
