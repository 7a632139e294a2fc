"""Needle sets by name. What is in the files is under their hashes."""

import pytest

from rmutils import DetectConfig
from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_needles
from rmutils.heads.detection import material


def test_a_set_is_asked_for_by_name():
    config = DetectConfig(needle_set="associative", needles=2)
    assert material(config, "book")[1] == load_needles(CORPORA["book"] / "associative")[:2]
    assert material(config.changed({"corpus": "world", "needle_set": "plain"}), "book")[1] == (
        load_needles(CORPORA["world"] / "plain")[:2])
    with pytest.raises(UserError, match="no needle set of world .*'associative'.*literal"):
        material(config, "world")
    assert config.identity() == DetectConfig(needles=2).identity()  # texts count, not names
