"""Programs that are no members: the client, its line to a member, the member's door, a log client without a loop."""
