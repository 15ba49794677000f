"""Read files that people put into data/: human ratings, recorded verdicts and pairwise verdicts."""
