"""The classical cells against the packages that users come from."""
