"""Consumer groups: members of one name share the events of durable topics. Read ``machine`` first."""
