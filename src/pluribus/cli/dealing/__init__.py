"""The dealing room: a demonstration of publish-subscribe, durable topics and Spark at work."""
