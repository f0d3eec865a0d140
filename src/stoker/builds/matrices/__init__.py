"""`stoker matrix`: every variant of stoker.toml across Python versions, built or slimmed."""
