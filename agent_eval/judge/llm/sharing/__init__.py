"""Share the questions of several workers: claims, and the calls that depend on them."""
