"""What a model can do besides long contexts, and how far a training has moved it (section 5.1)."""
