"""The base of all other packages: configurations, stored results, journals, files, errors."""
