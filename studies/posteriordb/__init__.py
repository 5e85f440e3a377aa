"""Posteriors of the database posteriordb: reference draws, and fits that are wrong."""
