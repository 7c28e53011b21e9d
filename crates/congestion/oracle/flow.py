# SPDX-License-Identifier: MIT OR Apache-2.0
"""One TCP flow, never limited by its application.

    flow.py serve BYTES                    accepts one connection and reads it, so much at a time
    flow.py send ADDRESS CONTROL SECONDS   sends over it with that congestion control
"""

import socket
import sys
import time

PORT = 5201
CHUNK = bytes(1 << 18)


def serve(low_water):
    with socket.create_server(("0.0.0.0", PORT)) as listener:
        print("ready", flush=True)
        connection, _ = listener.accept()
        with connection:
            # Processes are what costs time in a guest, not packets: it is not woken for each.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, int(low_water))
            while connection.recv(1 << 21):
                pass


def send(address, control, seconds):
    with socket.socket() as flow:
        flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        flow.connect((address, PORT))
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            flow.send(CHUNK)
        # An orderly end would first send what waits; the flow is over.
        flow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))


if __name__ == "__main__":
    {"serve": serve, "send": send}[sys.argv[1]](*sys.argv[2:])
