"""The whole study as a graph of jobs: fetch, detect, mask, generate, pairs, train, evaluate.

`plan` says which; each of the `jobs` calls what the commands call, and leaves a record that names
the stored results. Snakemake (`Snakefile`) decides what must run, on this machine or on a cluster;
notebooks and book come last.
"""
