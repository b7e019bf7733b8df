"""What a request's query says, and what is wrong with it."""
