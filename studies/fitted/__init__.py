"""Models fitted to the data that they are tested on."""
