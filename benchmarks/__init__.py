"""How fast it is, as ratios to a peer or a floor measured in the same run: `make bench`."""
