"""What a source tree is, as read from its own files. Nothing of it is run, nothing is decided."""
