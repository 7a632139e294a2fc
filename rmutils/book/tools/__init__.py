"""Tools around the book: a report on a model, the archive, the stick, the doctor."""
