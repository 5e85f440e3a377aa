"""The level of every test, measured on null data."""
