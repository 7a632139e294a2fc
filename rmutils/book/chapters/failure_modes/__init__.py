"""The chapter *What goes wrong without retrieval heads* (`notebooks/08_failure_modes.ipynb`)."""
