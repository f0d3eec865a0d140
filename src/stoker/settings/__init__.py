"""What the user wants and where it was said: default, stoker.toml, environment, command line."""
