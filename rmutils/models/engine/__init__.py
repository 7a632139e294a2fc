"""What reads prompts and writes answers fast: batches, shared prefixes, caches, memory."""
