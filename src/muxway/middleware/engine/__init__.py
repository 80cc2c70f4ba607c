"""How middleware is loaded and run."""
