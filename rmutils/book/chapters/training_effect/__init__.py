"""The chapter *What the training does to the heads* (`notebooks/06_training_effect.ipynb`)."""
