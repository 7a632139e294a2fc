"""The chapter *Bring your own model* (`notebooks/your_own_model.ipynb`)."""
