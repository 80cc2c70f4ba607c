"""From a caller and a name to what is called."""
