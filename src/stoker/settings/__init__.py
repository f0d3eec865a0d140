"""The user's settings and their origins: default, stoker.toml, environment, command line."""
