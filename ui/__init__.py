"""What pages share: cached reads of the store, pieces of pages, and words for numbers."""
