"""Finds the cause of a failed build in its log, with the evidence and the fix."""
