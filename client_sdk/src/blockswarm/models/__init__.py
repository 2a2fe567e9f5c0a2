"""transformers models whose layers are served by the swarm; only embedding, final norm and head are local."""
