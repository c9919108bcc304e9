"""Groups: channels, through which messages are sent and received, and how frames find them. Pure, like the layers
below."""
