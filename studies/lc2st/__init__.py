"""Draws of amortized posteriors, beside what L-C2ST finds in the same draws."""
