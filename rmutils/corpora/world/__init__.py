"""An invented world: people, places, objects and events, and English texts about them.

All that the teaching models ever read comes from here. A `World` is a knowledge base drawn from a
seed; `documents` writes it down, `instructions` makes short questions and answers, and `tasks` asks
about long texts. As the facts come first and the words after, each sample carries its right answer,
the sentences that support it and its key points.
"""

from rmutils.corpora.world.facts import Fact, World

__all__ = ["Fact", "World"]
