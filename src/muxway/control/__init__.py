"""The control socket: how `muxway status` and its like speak with a gateway that runs. Never on the network.

    folders     where the sockets are, and who may enter
    serving     the gateway's end: bounded in every way
    answering   what is answered
    client      the other end: finds the gateways that run, and asks them

A connection is one request, a line of JSON, and its answer, one line or many.
"""
