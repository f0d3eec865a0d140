"""What becomes of a wheel once it is built: planned first, then applied at once."""
