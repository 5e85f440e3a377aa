"""Tests with a tolerance: their level on the boundary of what is tolerated, and their power beyond it."""
