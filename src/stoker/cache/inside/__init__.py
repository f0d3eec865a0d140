"""Programs that run within builds: with the standard library only, and nothing of stoker."""
