"""Experiments of one chapter each: a module has the name of its chapter's question."""
