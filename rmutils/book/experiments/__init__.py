"""Measurements and planned runs that several chapters show."""
