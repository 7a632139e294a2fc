"""The chapter *Heads that share their weights: Share-Attention*."""
