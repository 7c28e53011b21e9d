// SPDX-License-Identifier: MIT OR Apache-2.0
//! client – relay – server in network namespaces that go when the testbed goes.

use host::{netns::Netns, process::inside};
use std::{
    io::Write,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

pub(crate) struct Testbed {
    pub(crate) client: Netns,
    pub(crate) relay: Netns,
    pub(crate) server: Netns,
}

/// What one socket buffer may grow to.
pub(crate) const BUFFER_MAX: u64 = 1 << 20;

/// Addresses; a neighbour in 10.77.2.0/24 that never answers; a network behind which nobody is.
const CLIENT: &str = "link set lo up
address add 10.77.1.1/24 dev eth0
link set eth0 up
route add default via 10.77.1.2";
const SERVER: &str = "link set lo up
address add 10.77.2.1/24 dev eth0
link set eth0 up
route add default via 10.77.2.2";
const RELAY: &str = "link set lo up
address add 10.77.1.2/24 dev near
link set near up
address add 10.77.2.2/24 dev far
link set far up
neighbour add 10.77.2.9 lladdr 02:00:00:00:00:09 dev far nud permanent
route add unreachable 10.77.3.0/24
rule add fwmark 1 lookup 100
route add local default dev lo table 100";
/// The rules of docs/relay.md for transparent listeners. What goes to the relay itself passes.
const DIVERT: &str = "table ip longhaul {
    chain divert {
        type filter hook prerouting priority mangle;
        meta l4proto tcp socket transparent 1 meta mark set 0x1 accept
        iifname near ip daddr != 10.77.1.2 meta l4proto tcp tproxy to :3129 meta mark set 0x1 accept
    }
}";

impl Testbed {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let create = |end| {
            let name = format!("conform-{}-{number}-{end}", std::process::id());
            Netns::create(&name).unwrap()
        };
        let bed = Self {
            client: create("c"),
            relay: create("r"),
            server: create("s"),
        };
        bed.join(&bed.client, "near");
        bed.join(&bed.server, "far");
        for (netns, lines) in [
            (&bed.client, CLIENT),
            (&bed.server, SERVER),
            (&bed.relay, RELAY),
        ] {
            limit_buffers(netns);
            feed(netns, "ip", &["-batch", "-"], lines);
        }
        feed(&bed.relay, "nft", &["-f", "-"], DIVERT);
        bed
    }

    fn join(&self, end: &Netns, port: &str) {
        let relay = self.relay.name().expect("created by name");
        let veth = format!("link add eth0 type veth peer name {port} netns {relay}");
        feed(end, "ip", &["-batch", "-"], &veth);
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for netns in [&self.client, &self.relay, &self.server] {
            let _ = Netns::delete(netns.name().expect("created by name"));
        }
    }
}

/// Small enough that a stalled connection is full soon.
fn limit_buffers(netns: &Netns) {
    let limits = format!("4096 131072 {BUFFER_MAX}");
    netns
        .run(|| {
            std::fs::write("/proc/sys/net/ipv4/tcp_rmem", &limits)?;
            std::fs::write("/proc/sys/net/ipv4/tcp_wmem", &limits)
        })
        .unwrap();
}

pub(crate) fn feed(netns: &Netns, program: &str, args: &[&str], lines: &str) {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped());
    let mut child = inside(&mut command, netns).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    assert!(
        child.wait().unwrap().success(),
        "{program} {args:?}: {lines}"
    );
}
