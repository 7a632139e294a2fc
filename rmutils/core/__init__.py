"""What everything else stands on: configurations, stored results, journals, files, errors."""
