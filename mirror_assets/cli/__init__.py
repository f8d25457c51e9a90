"""The command line: typer for the words, rich for the tables."""
