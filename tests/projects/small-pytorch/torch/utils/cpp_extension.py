"""Here because a PyTorch tree has it."""
