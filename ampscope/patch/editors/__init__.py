"""One file per family of edits; each registers its functions with `@editor`."""
