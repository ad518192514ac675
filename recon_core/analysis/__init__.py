"""What the figures of both papers say, as numbers: small named results, each a table as well."""
