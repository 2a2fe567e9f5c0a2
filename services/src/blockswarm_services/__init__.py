"""The processes of a swarm: block servers, directories, and the local mode that runs both."""
