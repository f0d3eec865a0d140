"""Who may run when: the policy, what it predicts from, the simulator, and the daemon round them."""
