"""Passes without a session: forward and backward through remote blocks, as autograd sees them."""
