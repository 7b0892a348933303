"""A traced collective drawn: round by round, in place, as tables, documents, plots and a page."""
