"""The governor: policy, predictions and simulator, and the daemon that applies them to builds."""
