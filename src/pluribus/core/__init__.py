"""What every room shares: identities, messages, frames, views, errors, limits and ports. Imports nothing of ours."""
