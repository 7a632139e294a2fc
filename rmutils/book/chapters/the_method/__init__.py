"""The chapter *How RetMask works, on one pair* (`notebooks/the_method.ipynb`)."""
