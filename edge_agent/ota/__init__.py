"""Over-the-air updates: trust, floors, the weights store and the update state machine."""
