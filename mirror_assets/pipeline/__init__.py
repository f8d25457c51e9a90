"""Spark through PySpark: DataFrames become data files and commits; bulk work on many tables."""
