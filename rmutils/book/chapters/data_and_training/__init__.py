"""The chapter *The pairs, and the training on them* (`notebooks/09_data_and_training.ipynb`)."""
