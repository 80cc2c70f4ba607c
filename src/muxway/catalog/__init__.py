"""What all servers offer, as one list: public names, routes, and listings encoded once. Pure."""
