"""The mirror: publishes what SQL has ratified."""
