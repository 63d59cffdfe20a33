"""Whose turn is this? Items and client marks in, a Match out. Pure: no store, no tokens, no clock."""
