"""The whole study as a graph of jobs: fetch, detect, mask, generate, pairs, train, evaluate.

A plan (`plan`) says which; each job (`stages`) calls what the commands call, and leaves a record
(`records`) that names the stored results. Snakemake (`Snakefile`) decides what must run, on this
machine or on a cluster; notebooks and book come last.
"""
