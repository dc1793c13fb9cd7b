"""When each request goes: slots, tickets, the gate, and whose turn it is."""
