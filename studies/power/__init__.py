"""Power of tests against sample size, bandwidth, split and perturbation."""
