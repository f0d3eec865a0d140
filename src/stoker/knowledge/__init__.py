"""What we know of the world: TOML tables, each with its types and one cached reader beside it."""
