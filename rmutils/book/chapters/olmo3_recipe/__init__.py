"""The chapter *Reading further: the recipe of Olmo 3 in small*."""
