#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a client and its server notice of what stands between them: bench/interception/pepsal.py runs one probe at a time.

A probe returns in a few words what it saw. Where nothing stands between them it is what a router gives.
"""
import contextlib, errno, json, queue, select, selectors, socket, struct, sys, threading, time

CLIENT, SERVER, SERVER6, NOBODY = "10.9.1.1", "10.9.2.1", "fd00:9:2::1", "10.9.2.99"
NAMES, RESETS, COUNTS, SENDS, ANSWERS, ENDS_FIRST, URGENT, ECHOES, NOTES = range(9001, 9010)
REFUSING, UNREACHABLE, SILENT = range(9011, 9014)
# A server's firewall.
RULES = f"""table inet answers {{ chain c {{ type filter hook input priority 0
tcp dport {SILENT} drop
tcp dport {UNREACHABLE} reject with icmpx host-unreachable
}}
}}
"""
TCP_SAVE_SYN, TCP_SAVED_SYN = 27, 28
AF11 = 10 << 2
# Longer than a router asks for the address of a host that is not there.
PATIENCE_S = 5
MANY = bytes(5_000_000)
HALF = bytes(100_000)
RESET = struct.pack("ii", 1, 0)


# The server: what it does on each port. What it noticed of one connection it sends on another.

notes = queue.Queue()


def send_name(connection):
    """Whom it sees, and of the SYN its IP version, TOS and TTL or hop limit."""
    syn = connection.getsockopt(socket.IPPROTO_TCP, TCP_SAVED_SYN, 128)
    address, port = connection.getpeername()[:2]
    connection.sendall(json.dumps({"address": address, "port": port, "tos": syn[1], "hops": syn[7 if syn[0] >> 4 == 6 else 8]}).encode())


def reset(connection):
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def count(connection):
    total, end = 0, "end"
    try:
        while data := connection.recv(1 << 16):
            total += len(data)
    except ConnectionResetError:
        end = "reset"
    notes.put(f"{total} bytes, {end}")


def send(connection):
    connection.sendall(MANY)


def answer(connection):
    count(connection)
    time.sleep(0.3)
    connection.sendall(HALF)


def end_first(connection):
    connection.recv(1)
    connection.shutdown(socket.SHUT_WR)
    count(connection)


def receive_urgent(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    poll, text = select.poll(), b""
    poll.register(connection, select.POLLPRI)
    marked = "urgent" if poll.poll(1000) else "not marked"
    while data := connection.recv(100):
        text += data
    notes.put(f"{text.decode()}, {marked}")


def send_note(connection):
    try:
        connection.sendall(notes.get(timeout=PATIENCE_S - 1).encode())
    except queue.Empty:
        connection.sendall(b"no end")


PORTS = {NAMES: send_name, RESETS: reset, COUNTS: count, SENDS: send, ANSWERS: answer, ENDS_FIRST: end_first,
         URGENT: receive_urgent, NOTES: send_note}


def listening(port):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
    listener.setsockopt(socket.IPPROTO_TCP, TCP_SAVE_SYN, 1)
    return listener


def handle(act, connection):
    with connection:
        act(connection)


def accept(listener, act):
    while True:
        threading.Thread(target=handle, args=(act, listener.accept()[0]), daemon=True).start()


def echo(listener):
    """Any number of connections that say something seldom."""
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listener:
                waiting.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            try:
                data = key.fileobj.recv(100)
                key.fileobj.sendall(data)
            except OSError:
                data = b""
            if not data:
                waiting.unregister(key.fileobj)
                key.fileobj.close()


def serve():
    listeners = {port: listening(port) for port in [*PORTS, ECHOES]}
    for port, act in PORTS.items():
        threading.Thread(target=accept, args=(listeners[port], act), daemon=True).start()
    print("ready", flush=True)
    echo(listeners[ECHOES])


# The client.

def connected(port, host=SERVER, own_port=0):
    connection = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    connection.settimeout(PATIENCE_S)
    try:
        if own_port:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            connection.bind(("", own_port))
        connection.connect((host, port))
    except OSError:
        connection.close()
        raise
    return connection


def words(error):
    if isinstance(error, TimeoutError):
        return "no answer"
    known = {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EPIPE: "reset", errno.EHOSTUNREACH: "unreachable"}
    return known.get(error.errno, str(error))


def everything(connection):
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def ask(port, **how):
    with connected(port, **how) as connection:
        return everything(connection)


def name(**how):
    return json.loads(ask(NAMES, **how) or b"{}")


def note():
    return ask(NOTES).decode()


def opening(port, host=SERVER):
    """How an attempt ends at a server that does not accept it. Only a connection that was accepted can be reset."""
    try:
        connection = connected(port, host)
    except ConnectionResetError:
        return "accepted, then reset"
    except OSError as error:
        return words(error)
    with connection:
        try:
            return "accepted, then " + ("bytes" if connection.recv(1) else "closed")
        except OSError as error:
            return f"accepted, then {words(error)}"


def source_address():
    address = name().get("address", "").removeprefix("::ffff:")
    return "kept" if address == CLIENT else f"{address or 'nothing'}"


def source_port():
    with connected(NAMES) as connection:
        own = connection.getsockname()[1]
        return "kept" if json.loads(everything(connection))["port"] == own else "another"


def dscp():
    with socket.socket() as connection:
        connection.settimeout(PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, AF11)
        connection.connect((SERVER, NAMES))
        tos = json.loads(everything(connection))["tos"] & 0xFC
        return "kept" if tos == AF11 else f"{tos >> 2}"


def from_server_reset():
    with connected(RESETS) as connection:
        connection.sendall(b"x")
        return "bytes" if connection.recv(1) else "end"


def from_client_reset():
    with connected(COUNTS) as connection:
        connection.sendall(b"x")
        time.sleep(0.3)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return note()


def client_ends_first():
    with connected(ANSWERS) as connection:
        connection.sendall(HALF)
        connection.shutdown(socket.SHUT_WR)
        got = len(everything(connection))
    return f"{note()}; {got} bytes back"


def server_ends_first():
    with connected(ENDS_FIRST) as connection:
        connection.sendall(b"x")
        everything(connection)
        time.sleep(0.3)
        connection.sendall(HALF)
    return note()


def up():
    with connected(COUNTS) as connection:
        connection.sendall(MANY)
    return note()


def down():
    with connected(SENDS) as connection:
        time.sleep(0.5)
        return f"{len(everything(connection))} bytes"


def urgent():
    with connected(URGENT) as connection:
        for data, flag in ((b"a", 0), (b"u", socket.MSG_OOB), (b"z", 0)):
            connection.send(data, flag)
            time.sleep(0.1)
    return note()


def one_port():
    """Two connections at once from one port, to two ports of the server."""
    with connected(COUNTS, own_port=40001) as first:
        told = name(own_port=40001)
        first.sendall(b"x")
    return f"{'served' if told else 'nothing'}; {note()}"


def ipv6():
    """A router takes one from the hop limit; who opens a connection of its own begins anew."""
    return "split" if name(host=SERVER6)["hops"] == 64 else "forwarded"


def idle(count):
    """Connections that say something once all are open, within half a minute; and whether one more is served."""
    held, answered, end = [], 0, time.monotonic() + 30
    with contextlib.suppress(OSError):
        while len(held) < count and time.monotonic() < end:
            held.append(connected(ECHOES))
    for connection in held:
        with contextlib.suppress(OSError):
            connection.sendall(b"x")
    for connection in held:
        connection.settimeout(max(0.005, end - time.monotonic()))
        with contextlib.suppress(OSError):
            answered += len(connection.recv(1))
    try:
        more = "one more is served" if name() else "one more is not served"
    except OSError as error:
        more = f"one more: {words(error)}"
    return f"{answered}; {more}"


PROBES = {
    "source address": source_address,
    "source port": source_port,
    "DSCP of the SYN": dscp,
    "IPv6": ipv6,
    "closed port": lambda: opening(REFUSING),
    "router says host unreachable": lambda: opening(UNREACHABLE),
    "no such host": lambda: opening(80, NOBODY),
    "silent port": lambda: opening(SILENT),
    "server resets": from_server_reset,
    "client resets, server sees": from_client_reset,
    "client ends first": client_ends_first,
    "server ends first": server_ends_first,
    "5 MB up, then close": up,
    "5 MB down, then close": down,
    "urgent byte u of auz": urgent,
    "two servers from one port": one_port,
    "2,000 idle, answered later": lambda: idle(2000),
    "5,000 idle, answered later": lambda: idle(5000),
}


def probe(which):
    try:
        print(PROBES[which]())
    except OSError as error:
        print(words(error))


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else probe(sys.argv[2])
