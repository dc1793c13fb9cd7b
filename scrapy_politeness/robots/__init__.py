"""robots.txt: fetched, read, obeyed."""
