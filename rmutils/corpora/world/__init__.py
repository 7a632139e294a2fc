"""An invented world: people, places, objects and events, and English texts about them."""

from rmutils.corpora.world.facts import Fact, World

__all__ = ["Fact", "World"]
