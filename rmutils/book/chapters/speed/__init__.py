"""The chapter *How fast, and how far from the floor* (`notebooks/17_speed.ipynb`)."""
