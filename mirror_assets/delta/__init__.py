"""The Delta protocol as pure values: no I/O, no clock, no environment."""
