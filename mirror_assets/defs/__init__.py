"""The Dagster edge: a resource in, one domain call, a result out."""
