"""Shipped or own text becomes haystacks, needles and cases."""
