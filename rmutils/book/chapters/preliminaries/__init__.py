"""The chapter *Finding a needle: retrieval heads* (`notebooks/01_preliminaries.ipynb`)."""
