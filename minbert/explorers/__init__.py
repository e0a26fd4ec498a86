"""Pictures that answer to the hand: scenes are tested figures, widgets put controls beside them."""
