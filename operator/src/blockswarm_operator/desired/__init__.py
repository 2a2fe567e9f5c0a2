"""What shall exist, as plain manifests: one pure file a kind of child."""
