"""The page *Memory where it retrieves*."""
