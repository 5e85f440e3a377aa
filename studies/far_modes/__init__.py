"""Wrong weights of far modes: what sees them, with a sampler and without."""
