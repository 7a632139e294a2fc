"""The chapter *Positions on many scales: Ms-PoE* (`notebooks/11_ms_poe.ipynb`)."""
