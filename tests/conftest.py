"""What holds for all tests."""

import signal


def pytest_configure(config):
    """SIGTERM ends a run as Ctrl-C does, so that the processes and clusters which tests started are put away."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
