"""General abilities, and how far a training has moved them (section 5.1)."""
