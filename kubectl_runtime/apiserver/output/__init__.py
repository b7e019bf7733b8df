"""From stored objects to the bytes of an answer, in the form that was asked for."""
