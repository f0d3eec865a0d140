"""What was measured of runs, and the same runs on a virtual clock."""
