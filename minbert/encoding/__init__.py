"""Running taught models fast, and reading and writing their folders. Models come from the caller."""
