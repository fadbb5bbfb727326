"""Work beside the request path: idle detection, queued user messages, requests in flight, records and summaries."""
