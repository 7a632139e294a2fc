"""The steps of RetMask, from a model to its training, and the runs that the book shows."""
