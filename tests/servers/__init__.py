"""Links and channels by themselves: what they count, what they bound, what they do with nonsense."""
