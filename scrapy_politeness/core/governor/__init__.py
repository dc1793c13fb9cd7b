"""What is believed of a host, and the rate that follows from it."""
