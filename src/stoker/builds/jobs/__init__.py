"""Builds in several jobs: shards, checkpoints, and a simulation of them."""
