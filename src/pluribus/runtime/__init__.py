"""The node on a real machine: an asyncio loop, sockets, a clock. The only room that owns a loop."""
