"""The same model with another attention: one file per variant."""
