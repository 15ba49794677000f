"""Ask judge models about error clusters: their names, and their categories in a taxonomy."""
