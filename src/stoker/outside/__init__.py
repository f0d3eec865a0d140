"""All access to the outside: processes, stoker's own folders, files that appear whole."""
