"""From the log of a failed build to its cause, the evidence and the fix."""
