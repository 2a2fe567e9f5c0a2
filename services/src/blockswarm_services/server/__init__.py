"""A block server: one process that serves one span of a model."""
