"""The chapter *Retrieval heads under change*."""
