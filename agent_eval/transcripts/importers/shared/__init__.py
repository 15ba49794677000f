"""Provide code for several importers: file layouts, message forms, assembly of conversations."""
