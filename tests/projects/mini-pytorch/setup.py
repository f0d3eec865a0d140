"""The front end of releases up to 2.13, reduced to its metadata."""

from pathlib import Path

from setuptools import setup

version = Path(__file__).with_name("version.txt").read_text().strip()

setup(name="torch", version=version)
