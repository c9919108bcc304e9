"""The one codec: frames to bytes and back, bodies of every kind, checked before they are believed."""
