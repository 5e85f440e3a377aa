"""The paper's tables and figures on Gaussian mixtures."""
