"""Interactive explorers: tested figures, and the controls that change them."""
