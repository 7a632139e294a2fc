"""Reads prompts and writes answers fast: batches, shared prefixes, caches, memory."""
