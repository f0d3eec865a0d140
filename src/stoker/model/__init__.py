"""What things are: frozen values, enums and the tree of user errors. No input or output here."""
