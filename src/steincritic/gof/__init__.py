"""Goodness-of-fit tests: values that run themselves, one result type, one door (`gof_test`)."""
