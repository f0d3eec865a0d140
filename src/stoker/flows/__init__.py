"""Where capabilities meet: each flow is a list one can read from top to bottom."""
