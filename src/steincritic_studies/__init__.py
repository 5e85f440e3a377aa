"""What reproduces the paper and measures the library; never imported by it."""
