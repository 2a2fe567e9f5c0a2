"""Two doors to the same records: a directory over gRPC, or the DHT itself."""
