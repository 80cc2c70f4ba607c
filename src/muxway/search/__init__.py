"""Finding tools by what they do: the index, the answers of `search_tools`, and what `call_tool` accepts."""
