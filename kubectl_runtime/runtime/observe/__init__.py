"""What a program shows of itself: metrics, health, and the one server that answers for both."""
