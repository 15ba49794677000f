"""Audits: the sample of stored answers that a judge model is asked again, and how far it has drifted."""
