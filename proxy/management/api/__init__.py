"""The HTTP API of `/stack` and `/health`. FastAPI takes 0.3 s to import, so only `serve` imports this package."""
