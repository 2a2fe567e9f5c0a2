"""The directory: a bootstrap node of the DHT, and a door to it for processes that do not join it."""
