"""The command line and what it runs: demo, sweeps, messages."""
