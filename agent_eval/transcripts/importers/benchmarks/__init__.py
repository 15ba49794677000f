"""Import the results of other evaluation tools, one module per format."""
