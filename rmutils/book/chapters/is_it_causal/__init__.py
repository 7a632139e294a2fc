"""The chapter *Is it causal? Necessary, sufficient, and the same at every token*."""
