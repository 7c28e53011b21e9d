#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Probes of how transparent a proxy is to a client and a server. bench/fidelity/run.py runs one probe at a time.

A probe returns what it observed, as a short text. Without a proxy that is the behaviour of a router.
"""
import contextlib, errno, json, queue, select, selectors, socket, struct, sys, threading, time

CLIENT, SERVER, SERVER6, ABSENT = "10.9.1.1", "10.9.2.1", "fd00:9:2::1", "10.9.2.99"
PEER_INFO, RESET, COUNT, SEND, RESPOND, CLOSE_FIRST, URGENT, ECHO, NOTE = range(9001, 9010)
REFUSED, UNREACHABLE, SILENT = range(9011, 9014)
# The firewall of the server.
RULES = f"""table inet fidelity {{ chain c {{ type filter hook input priority 0
tcp dport {SILENT} drop
tcp dport {UNREACHABLE} reject with icmpx host-unreachable
}}
}}
"""
TCP_SAVE_SYN, TCP_SAVED_SYN = 27, 28
AF11 = 10 << 2
# Longer than a router's ARP requests for an absent host.
TIMEOUT_S = 5
LARGE = bytes(5_000_000)
SMALL = bytes(100_000)
LINGER_0 = struct.pack("ii", 1, 0)


# The server has a behaviour for each port. It sends its observations of one connection on another, port NOTE.

notes = queue.Queue()


def send_peer_info(connection):
    """Sends the peer's address and port, and the TOS and the TTL or hop limit of its SYN."""
    syn = connection.getsockopt(socket.IPPROTO_TCP, TCP_SAVED_SYN, 128)
    address, port = connection.getpeername()[:2]
    connection.sendall(json.dumps({"address": address, "port": port, "tos": syn[1], "hops": syn[7 if syn[0] >> 4 == 6 else 8]}).encode())


def reset(connection):
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)


def count(connection):
    """Counts the bytes of a connection, and notes how it ends."""
    total, end = 0, "end"
    try:
        while data := connection.recv(1 << 16):
            total += len(data)
    except ConnectionResetError:
        end = "reset"
    notes.put(f"{total} bytes, {end}")


def send(connection):
    connection.sendall(LARGE)


def respond(connection):
    count(connection)
    time.sleep(0.3)
    connection.sendall(SMALL)


def close_first(connection):
    connection.recv(1)
    connection.shutdown(socket.SHUT_WR)
    count(connection)


def receive_urgent(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    poll, text = select.poll(), b""
    poll.register(connection, select.POLLPRI)
    mark = "urgent" if poll.poll(1000) else "not marked"
    while data := connection.recv(100):
        text += data
    notes.put(f"{text.decode()}, {mark}")


def send_note(connection):
    try:
        connection.sendall(notes.get(timeout=TIMEOUT_S - 1).encode())
    except queue.Empty:
        connection.sendall(b"no end")


HANDLERS = {PEER_INFO: send_peer_info, RESET: reset, COUNT: count, SEND: send, RESPOND: respond, CLOSE_FIRST: close_first,
            URGENT: receive_urgent, NOTE: send_note}


def listen(port):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
    listener.setsockopt(socket.IPPROTO_TCP, TCP_SAVE_SYN, 1)
    return listener


def handle(handler, connection):
    with connection:
        handler(connection)


def accept(listener, handler):
    while True:
        threading.Thread(target=handle, args=(handler, listener.accept()[0]), daemon=True).start()


def echo(listener):
    """Echoes on any number of connections that are mostly idle."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            try:
                data = key.fileobj.recv(100)
                key.fileobj.sendall(data)
            except OSError:
                data = b""
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()


def serve():
    listeners = {port: listen(port) for port in [*HANDLERS, ECHO]}
    for port, handler in HANDLERS.items():
        threading.Thread(target=accept, args=(listeners[port], handler), daemon=True).start()
    print("ready", flush=True)
    echo(listeners[ECHO])


# The client.

def connect(port, host=SERVER, own_port=0):
    connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    connection.settimeout(TIMEOUT_S)
    try:
        if own_port:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.bind(("", own_port))
        connection.connect((host, port))
    except OSError:
        connection.close()
        raise
    return connection


def describe(error):
    if isinstance(error, TimeoutError):
        return "no answer"
    known = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EPIPE: "reset", errno.EHOSTUNREACH: "unreachable"}
    return known.get(error.errno, str(error))


def read_all(connection):
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def request(port, **options):
    """Connects and returns all that the server sends."""
    with connect(port, **options) as connection:
        return read_all(connection)


def peer_info(**options):
    return json.loads(request(PEER_INFO, **options) or b"{}")


def note():
    return request(NOTE).decode()


def connect_outcome(port, host=SERVER):
    """Outcome of a connect that the server does not accept. Only an accepted connection can be reset."""
    try:
        connection = connect(port, host)
    except ConnectionResetError:
        return "accepted, then reset"
    except OSError as error:
        return describe(error)
    with connection:
        try:
            return "accepted, then " + ("bytes" if connection.recv(1) else "closed")
        except OSError as error:
            return f"accepted, then {describe(error)}"


def source_address():
    address = peer_info().get("address", "").removeprefix("::ffff:")
    return "kept" if address == CLIENT else f"{address or 'no response'}"


def source_port():
    with connect(PEER_INFO) as connection:
        own = connection.getsockname()[1]
        return "kept" if json.loads(read_all(connection))["port"] == own else "changed"


def dscp():
    with socket.socket() as connection:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, AF11)
        connection.connect((SERVER, PEER_INFO))
        tos = json.loads(read_all(connection))["tos"] & 0xFC
        return "kept" if tos == AF11 else f"{tos >> 2}"


def server_resets():
    with connect(RESET) as connection:
        connection.sendall(b"x")
        return "bytes" if connection.recv(1) else "end"


def client_resets():
    with connect(COUNT) as connection:
        connection.sendall(b"x")
        time.sleep(0.3)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
    return note()


def client_closes_first():
    with connect(RESPOND) as connection:
        connection.sendall(SMALL)
        connection.shutdown(socket.SHUT_WR)
        received = len(read_all(connection))
    return f"{note()}; {received} bytes back"


def server_closes_first():
    with connect(CLOSE_FIRST) as connection:
        connection.sendall(b"x")
        read_all(connection)
        time.sleep(0.3)
        connection.sendall(SMALL)
    return note()


def upload():
    with connect(COUNT) as connection:
        connection.sendall(LARGE)
    return note()


def download():
    with connect(SEND) as connection:
        time.sleep(0.5)
        return f"{len(read_all(connection))} bytes"


def urgent():
    with connect(URGENT) as connection:
        for data, flag in ((b"a", 0), (b"u", socket.MSG_OOB), (b"z", 0)):
            connection.send(data, flag)
            time.sleep(0.1)
    return note()


def shared_source_port():
    """Two concurrent connections from one port to two ports of the server."""
    with connect(COUNT, own_port=40001) as first:
        info = peer_info(own_port=40001)
        first.sendall(b"x")
    return f"{'served' if info else 'no response'}; {note()}"


def ipv6():
    """A router decrements the hop limit. A proxy opens a connection of its own with the initial value."""
    return "split" if peer_info(host=SERVER6)["hops"] == 64 else "forwarded"


def idle(count):
    """Opens idle connections, then uses each, within 30 s. Returns the number that answer, and whether one more is served."""
    connections, answered, end = [], 0, time.monotonic() + 30
    with contextlib.suppress(OSError):
        while len(connections) < count and time.monotonic() < end:
            connections.append(connect(ECHO))
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.sendall(b"x")
    for connection in connections:
        connection.settimeout(max(0.005, end - time.monotonic()))
        with contextlib.suppress(OSError):
            answered += len(connection.recv(1))
    try:
        more = "one more is served" if peer_info() else "one more is not served"
    except OSError as error:
        more = f"one more: {describe(error)}"
    return f"{answered}; {more}"


PROBES = {
    "source address": source_address,
    "source port": source_port,
    "DSCP of the SYN": dscp,
    "IPv6": ipv6,
    "closed port": lambda: connect_outcome(REFUSED),
    "router says host unreachable": lambda: connect_outcome(UNREACHABLE),
    "no such host": lambda: connect_outcome(80, ABSENT),
    "silent port": lambda: connect_outcome(SILENT),
    "server resets": server_resets,
    "client resets, server sees": client_resets,
    "client closes first": client_closes_first,
    "server closes first": server_closes_first,
    "5 MB up, then close": upload,
    "5 MB down, then close": download,
    "urgent byte u of auz": urgent,
    "two servers from one port": shared_source_port,
    "2,000 idle, answered later": lambda: idle(2000),
    "5,000 idle, answered later": lambda: idle(5000),
}


def probe(name):
    try:
        print(PROBES[name]())
    except OSError as error:
        print(describe(error))


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else probe(sys.argv[2])
