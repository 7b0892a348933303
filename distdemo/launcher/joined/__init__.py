"""Worlds that an engine started: this process finds itself to be one rank, and joins the others."""
