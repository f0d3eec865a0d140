"""The one door to the outside: processes, folders of our own, files that appear whole."""
