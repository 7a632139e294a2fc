"""What the front page finds and draws."""
