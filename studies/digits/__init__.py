"""Models of digits: a planted class, a flow and a machine."""
