"""The settings: one table, the rules for their values, and the policy made of them."""
