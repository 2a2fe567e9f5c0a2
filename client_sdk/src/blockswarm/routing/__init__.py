"""Which servers a session should use: a pure graph, a pure memory of failures, and the manager that feeds both."""
