"""What only the book needs: it imports the library, never the reverse."""
