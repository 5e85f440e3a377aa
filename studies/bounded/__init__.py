"""Models on half-lines, in boxes and on simplexes: level, a control that fails, and power."""
