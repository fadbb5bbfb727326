"""What people see and do beside the client: the HTTP API, the views it shows, the actions it takes, and exports."""
