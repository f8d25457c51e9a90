"""Publish Delta tables whose commits are ratified in SQL."""

__version__ = "0.1.0"
