"""The chapter *What else the model can do* (`notebooks/07_general_abilities.ipynb`)."""
