"""The chapter *How many heads to mask* (`notebooks/02_masking_sweep.ipynb`)."""
