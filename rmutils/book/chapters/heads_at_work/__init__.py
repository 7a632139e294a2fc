"""The page *What else do retrieval heads do?*"""
