"""The book's own machinery: what its pages show beside the chapters, and its other forms."""
