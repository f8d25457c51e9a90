"""Object stores and local files: the only code that knows obstore."""
