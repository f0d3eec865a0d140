"""Toolchains made from wheels of a package index, without root."""
