"""Planted faults, and what a diagnosis says of them."""
