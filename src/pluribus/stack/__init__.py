"""How layers become a node's protocol: the layer itself, composition, textual specification, and the trace."""
