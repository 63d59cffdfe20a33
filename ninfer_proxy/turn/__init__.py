"""The life of a request. `runner` is the story; the other modules are its chapters. Knows no wire format and no table."""
