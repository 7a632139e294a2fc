"""A model's answers and what they are worth."""
