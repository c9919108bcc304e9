"""Groups: channels, what is sent and received through them, and how frames find them. Pure, like the layers below."""
