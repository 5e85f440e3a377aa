"""Draws of posteriors, right and wrong."""
