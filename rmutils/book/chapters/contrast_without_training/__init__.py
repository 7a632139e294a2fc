"""The chapter *Contrast without training* (`notebooks/contrast_without_training.ipynb`)."""
