"""What passes through the gateway: a call, its caller, where its outcome goes."""
