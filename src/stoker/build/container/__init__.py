"""Containers to build in: an engine is found, told what to run, and given a stoker of ours inside.

What is built there, and how, is not known here.
"""
