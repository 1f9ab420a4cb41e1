"""The 2014 challenge, end to end."""
