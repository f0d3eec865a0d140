"""stoker feeds a build exactly as much as the machine can take."""

__version__ = "0.1.0"
