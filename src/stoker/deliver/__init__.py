"""Finishes wheels: packages, slims and verifies them. Each change is planned first, then
applied.
"""
