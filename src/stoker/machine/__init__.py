"""What is here: this machine and its tools, read and never judged."""
