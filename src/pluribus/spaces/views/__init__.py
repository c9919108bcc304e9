"""The algorithm of Xu and Liskov: every replica has every tuple, and only a take needs a lock."""
