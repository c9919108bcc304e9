"""What the asyncio loop of a process needs: clock, tasks in the background, waiting, draining, lateness, traces."""
