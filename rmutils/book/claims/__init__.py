"""The paper's claims: what decides each, the verdicts, and the list that chapter 10 shows."""
