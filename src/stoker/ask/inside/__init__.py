"""Programs that run in the room. They use the standard library only, and import nothing of stoker:
the Python that runs them is the one that the project is built for.
"""
