"""Where what is known of a slot lives beyond one run."""
