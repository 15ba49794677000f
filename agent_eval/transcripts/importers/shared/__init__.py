"""Share code of several importers: file layouts, message forms, assembly of conversations."""
