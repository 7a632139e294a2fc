"""Chapters, a folder for each: the notebook's name without its number."""
