"""Energies of toy densities, learned by their Stein discrepancy."""
