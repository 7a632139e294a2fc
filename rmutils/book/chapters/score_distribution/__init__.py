"""The chapter *How retrieval is spread over the heads*."""
