"""Alarms of watched streams."""
