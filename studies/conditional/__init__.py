"""Conditional models, beside the published kernel test and the likelihood ratio."""
