"""The chapter *From 8,192 to 65,536 tokens: the recipe of Olmo 3*."""
