"""Laws that hold for any bytes, and two ways to look for bytes that break them: hypothesis and atheris."""
