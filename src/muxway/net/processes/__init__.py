"""Child processes: who starts them, what they write, who ends them."""
