"""How people see what the add-on does."""
