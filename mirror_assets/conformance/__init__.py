"""The judge: rules of the Delta protocol, a validator that goes by them, readers, reports."""
