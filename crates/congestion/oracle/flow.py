# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sends or receives one TCP flow that its application never limits.

    flow.py serve BYTES                    accepts one connection and reads it, at least so many bytes at a time
    flow.py send ADDRESS CONTROL SECONDS   sends for so long with this congestion control
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
            # Waking a process costs more time in a guest than a packet, so it does not wake for each.
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
        # Reset the connection: an orderly close would first send the queued data.
        flow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))


if __name__ == "__main__":
    {"serve": serve, "send": send}[sys.argv[1]](*sys.argv[2:])
