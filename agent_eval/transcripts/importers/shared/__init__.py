"""What the importers of several formats share: how files are laid out, forms of messages, conversations put together."""
