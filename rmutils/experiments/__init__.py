"""What one chapter each computes: a module has the name of its chapter's question."""
