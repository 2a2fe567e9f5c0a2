"""Local mode: a BlockServer manifest as processes of this machine."""
