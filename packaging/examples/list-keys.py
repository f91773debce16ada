#!/usr/bin/env python3
"""Lists the keys that the holdfast agent shows to the caller.

The agent speaks varlink: one JSON object, ended by a NUL byte, each way over a
Unix stream socket. The methods are in internal/agentwire/io.holdfast.Agent.varlink.
"""
import json
import os
import socket
import sys


def call(path, method, **parameters):
    with socket.socket(socket.AF_UNIX) as agent:
        agent.settimeout(10)
        agent.connect(path)
        agent.sendall(json.dumps({"method": method, "parameters": parameters}).encode() + b"\0")
        reply = b""
        while not reply.endswith(b"\0"):
            part = agent.recv(65536)
            if not part:
                raise ConnectionResetError
            reply += part
    reply = json.loads(reply[:-1])
    if "error" in reply:
        sys.exit("{}: {}".format(reply["error"], reply["parameters"].get("message", "")))
    return reply["parameters"]


path = os.environ.get("HOLDFAST_SOCKET") or os.environ["XDG_RUNTIME_DIR"] + "/holdfast/agent.sock"
try:
    keys = call(path, "io.holdfast.Agent.ListKeys")["keys"]
except (BrokenPipeError, ConnectionResetError):  # closed before a byte was read
    sys.exit("the agent closed the connection: its policy does not name this user")
for key in keys:
    print("{name}\t{purpose}\t{algorithm}\t{backend}".format(**key))
