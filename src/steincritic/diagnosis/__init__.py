"""Where a model fails, how far, which of several is best, and whether its adapter can be trusted."""
