"""Decisions: pure functions from facts to a plan. No clock, no input or output."""
