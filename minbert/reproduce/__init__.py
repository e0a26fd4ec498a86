"""Every published table as a recipe: what was printed, what we did instead, what came out, and what of it can be told."""
