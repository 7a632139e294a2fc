"""The page *Which passage is answered?*"""
