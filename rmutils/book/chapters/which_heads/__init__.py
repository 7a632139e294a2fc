"""The chapter *Which heads? Several scores, and what each is worth*."""
