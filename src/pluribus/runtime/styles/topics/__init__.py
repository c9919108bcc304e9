"""Topics on a bus: publish and subscribe, live and durable, shared subscriptions, patterns, observed objects."""
