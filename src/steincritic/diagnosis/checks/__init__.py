"""The questions that the doctor asks a model, one family a file."""
