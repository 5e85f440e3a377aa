"""Tangent kernels and lazy training: the paper's theory as numbers."""
