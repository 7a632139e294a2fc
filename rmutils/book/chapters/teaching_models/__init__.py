"""The chapter *Where retrieval heads come from: three teaching models*."""
