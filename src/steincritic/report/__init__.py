"""The report of a check: one page, and its drawings."""
