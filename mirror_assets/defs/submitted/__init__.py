"""What `spark-submit` runs for Dagster, alone: Python looks in a script's own folder first."""
