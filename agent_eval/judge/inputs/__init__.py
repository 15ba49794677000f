"""Read the files of data/ that hold ratings and verdicts, and labels from other tools."""
