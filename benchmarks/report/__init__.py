"""What is published of the results: the page, its tables, its chart. Pure: results in, text out."""
