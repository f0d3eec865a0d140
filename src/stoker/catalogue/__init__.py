"""Catalogues of wheels: publishing, reading and choosing. ``wheel`` reads and verifies wheels."""
