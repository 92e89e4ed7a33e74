"""Commands about the gateway: serve, its configuration and its tokens."""
