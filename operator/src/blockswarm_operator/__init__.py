"""The operator: BlockServer resources in, pods, disruption budgets, statements in the DHT and status out."""
