// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that can't be split bypass the relay: those with signed segments (TCP-MD5, TCP-AO),
//! and subflows that join an MPTCP connection.

use longhaul_linux::process::inside;
use longhaul_testnet::{
    relay_process::may_use_namespaces,
    relay_testbed::{IPV4, Testbed},
};
use std::process::{Command, Output, Stdio};

/// Python, which can set the kernel's keys and build a SYN by hand.
const PYTHON: &str = "/usr/bin/python3";

/// `struct tcp_md5sig` (include/uapi/linux/tcp.h).
const KEY: &str = r"
import socket, struct
def signed(address):
    peer = struct.pack('<HH4s', socket.AF_INET, 0, socket.inet_aton(address)).ljust(128, b'\0')
    key = struct.pack('<BBHI', 0, 0, 6, 0) + b'secret'.ljust(80, b'\0')
    s = socket.socket()
    s.settimeout(20)
    s.setsockopt(socket.IPPROTO_TCP, 14, peer + key)
    return s
";

/// Server that sends the address of its only client back to it.
const SERVER: &str = r"
s = signed('10.77.1.1')
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('10.77.2.1', 8080))
s.listen()
print('ready', flush=True)
client, address = s.accept()
client.sendall(address[0].encode())
client.close()
";

const CLIENT: &str = r"
s = signed('10.77.2.1')
s.connect(('10.77.2.1', 8080))
print(s.recv(99).decode())
";

/// TCP-AO (RFC 5925 §2.2), and MP_JOIN (RFC 8684 §3.2).
const OPTIONS: [&str; 2] = [
    "option = bytes([29, 16, 1, 1]) + bytes(12)",
    "option = bytes([30, 12, 0x10, 1]) + bytes(8)",
];

/// Sends a SYN with `option` and prints TTL and flags of the reply: the relay is a hop nearer than
/// the server.
const SYN: &str = r"
import socket, struct
def checksum(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return 0xffff - total
source, to = socket.inet_aton('10.77.1.1'), socket.inet_aton('10.77.2.1')
head = struct.pack('!HHIIBBHHH', 40000, 8081, 1, 0, (20 + len(option)) // 4 << 4, 2, 65535, 0, 0) + option
pseudo = source + to + struct.pack('!HH', socket.IPPROTO_TCP, len(head))
head = head[:16] + struct.pack('!H', checksum(pseudo + head)) + head[18:]
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
s.settimeout(20)
s.sendto(head, ('10.77.2.1', 0))
while True:
    packet = s.recv(2000)
    if packet[22:24] == struct.pack('!H', 40000):
        print(packet[8], packet[33])
        break
";

fn python(script: &str) -> Command {
    let mut command = Command::new(PYTHON);
    command.args(["-c", script]);
    command
}

fn on_client(bed: &Testbed, script: &str) -> Output {
    let mut command = python(script);
    inside(&mut command, &bed.client).output().unwrap()
}

fn printed(output: &Output) -> &str {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    std::str::from_utf8(&output.stdout).unwrap().trim()
}

fn should_skip() -> bool {
    if !may_use_namespaces() {
        return true;
    }
    let can_sign = python(&(KEY.to_owned() + "signed('127.0.0.1')")).output();
    let should_skip = !can_sign.is_ok_and(|output| output.status.success());
    if should_skip {
        println!("skipped: no {PYTHON}, or a kernel without CONFIG_TCP_MD5SIG");
    }
    should_skip
}

#[test]
fn inseparable_connections_bypass_relay() {
    if should_skip() {
        return;
    }
    let bed = Testbed::new("signed");
    for flags in [&[][..], &["--verify-connect"], &["--keep-source"]] {
        let listener = [
            "--transparent",
            "127.0.0.1:3129",
            "--intercept",
            "10.77.2.0/24",
        ];
        let _relay = bed.relay(&[&listener[..], flags].concat());

        let mut server = python(&[KEY, SERVER].concat());
        let mut server = inside(server.stdout(Stdio::piped()), &bed.server)
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(server.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let client = on_client(&bed, &[KEY, CLIENT].concat());
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!(printed(&client), IPV4.client.to_string(), "{flags:?}");

        let _server = bed.listen(IPV4.server_port(8081));
        for option in OPTIONS {
            let syn_ack = on_client(&bed, &[option, SYN].concat());
            assert_eq!(printed(&syn_ack), "63 18", "{option} {flags:?}");
        }
    }
}

#[test]
fn bypass_excludes_connections() {
    if !may_use_namespaces() {
        return;
    }
    let bed = Testbed::new("bypass");
    for flags in [&[][..], &["--verify-connect"]] {
        let listener = [
            "--transparent",
            "127.0.0.1:3129",
            "--intercept",
            "10.77.2.0/24",
            "--bypass",
            "0.0.0.0/0:22,8082-8083",
            "--bypass",
            "[::/0]:8081",
        ];
        let _relay = bed.relay(&[&listener[..], flags].concat());
        for (port, wanted) in [
            (8081, IPV4.upstream),
            (8082, IPV4.client),
            (22, IPV4.client),
        ] {
            let server = bed.listen(IPV4.server_port(port));
            let _client = bed.connect(IPV4.server_port(port)).unwrap();
            let (_, from) = server.accept().unwrap();
            assert_eq!(from.ip(), wanted, "{port} {flags:?}");
        }
    }
}
