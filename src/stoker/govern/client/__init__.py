"""A governed command: its session, its environment, and what is shown of it."""
