"""Groups as an application holds them: joining, sending, asking, calls, replicas, founding, surveys."""
