"""The whole study as a graph of jobs: fetch, detect, mask, generate, pairs, train, evaluate."""
