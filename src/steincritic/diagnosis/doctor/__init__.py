"""doctor: is the model adapter right? One file for each kind of question."""
