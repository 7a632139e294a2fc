"""The chapter *Later layers see less: Select-Attention* (`notebooks/13_select_attention.ipynb`)."""
