"""For teachers: worksheets in nbgrader's format, and slides, made from the chapters."""
