"""What stands against those who mean harm: each test fails without its defence (docs/security.md)."""
