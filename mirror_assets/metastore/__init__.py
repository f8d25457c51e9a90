"""The SQL metastore: the authority on every registered table."""
