"""The chapter *Does the training help on long texts?* (`notebooks/03_main_tables.ipynb`)."""
