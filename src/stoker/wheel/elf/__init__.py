"""ELF files and the device code inside them: reads every part, and edits the dynamic section."""
