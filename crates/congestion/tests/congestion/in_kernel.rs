// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every object in the running kernel: the verifier accepts it, and a connection with losses uses it.

use libbpf_rs::{
    Link, MapCore, MapFlags, MapType, Object, ObjectBuilder, Program, query::ProgInfoIter,
};
use longhaul_congestion::object::OBJECTS;
use longhaul_linux::tcp_info::TcpInfo;
use longhaul_testnet::namespace::{Namespace, run_ip, run_with_input};
use longhaul_testprograms::skip::may_load_bpf;
use socket2::{Domain, Socket, Type};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd},
    thread,
    time::Duration,
};

/// Bytes of each connection: a few thousand packets.
const PAYLOAD: usize = 8 << 20;

/// Limit of instructions that the verifier may process: far above our programs, a two-hundredth of its own.
const VERIFIED_MOST: u32 = 5_000;

/// A congestion control in the kernel, until this value is dropped.
struct Loaded {
    name: String,
    object: Object,
    _link: Link,
}

/// Loads an object. Names are shared by the machine, which may use lh_… already: ours begin with a number.
fn load(name: &str, elf: &[u8]) -> Loaded {
    let mut open = ObjectBuilder::default().open_memory(elf).unwrap();
    let kernel_name = format!("{:02x}_{name}", std::process::id() % 256);
    for mut map in open
        .maps_mut()
        .filter(|map| map.map_type() == MapType::StructOps)
    {
        let value = map.initial_value_mut().unwrap();
        let (old, new) = (format!("lh_{name}\0"), format!("{kernel_name}\0"));
        let at = value
            .windows(old.len())
            .position(|bytes| bytes == old.as_bytes())
            .unwrap();
        value[at..at + new.len()].copy_from_slice(new.as_bytes());
    }
    let mut object = open
        .load()
        .unwrap_or_else(|error| panic!("lh_{name}: {error}"));
    let mut operations = object
        .maps_mut()
        .find(|map| map.map_type() == MapType::StructOps)
        .unwrap();
    let link = operations
        .attach_struct_ops()
        .unwrap_or_else(|error| panic!("lh_{name}: {error}"));
    Loaded {
        name: kernel_name,
        object,
        _link: link,
    }
}

impl Loaded {
    /// Returns each program's name and the instructions that the verifier processed.
    fn verified(&self) -> Vec<(String, u32)> {
        let number = |program: &Program<'_>| {
            let id = Program::id_from_fd(program.as_fd()).unwrap();
            ProgInfoIter::default()
                .find(|info| info.id == id)
                .unwrap()
                .verified_insns
        };
        self.object
            .progs()
            .map(|it| (it.name().to_string_lossy().into_owned(), number(&it)))
            .collect()
    }

    /// Whether `socket` is one of this congestion control's connections.
    fn knows(&self, socket: &TcpStream) -> bool {
        let connections = self
            .object
            .maps()
            .find(|map| map.name() == "connections")
            .unwrap();
        let key = socket.as_raw_fd().to_ne_bytes();
        connections.lookup(&key, MapFlags::ANY).unwrap().is_some()
    }
}

/// Creates a network namespace whose loopback carries one segment a packet and drops one in a hundred.
fn lossy_loopback() -> Namespace {
    let netns = Namespace::new("lh-cc");
    run_ip(&netns, "link set lo mtu 1500 gso_max_segs 1");
    let rules = "table ip lossy {
        chain in {
            type filter hook input priority 0;
            tcp dport 5000 numgen inc mod 100 == 50 counter drop
        }
    }";
    run_with_input(&netns, "nft", &["-f", "-"], rules);
    netns
}

fn receive(listener: &TcpListener) -> io::Result<usize> {
    let (mut socket, _) = listener.accept()?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let (mut chunk, mut received) = (vec![0; 1 << 16], 0);
    loop {
        match socket.read(&mut chunk)? {
            0 => return Ok(received),
            n => received += n,
        }
    }
}

fn connect(congestion_control: &str) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_congestion(congestion_control.as_bytes())?;
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], 5000)).into())?;
    socket.set_write_timeout(Some(Duration::from_secs(60)))?;
    Ok(socket.into())
}

fn transfer(loaded: &Loaded) -> io::Result<TcpInfo> {
    let listener = TcpListener::bind(("127.0.0.1", 5000))?;
    let receiver = thread::spawn(move || receive(&listener));
    let mut socket = connect(&loaded.name)?;
    assert!(loaded.knows(&socket));
    socket.write_all(&vec![7; PAYLOAD])?;
    let info = TcpInfo::of(&socket)?;
    socket.shutdown(std::net::Shutdown::Write)?;
    assert_eq!(receiver.join().unwrap()?, PAYLOAD);
    Ok(info)
}

#[test]
fn each_object_loads_and_carries_a_connection_with_losses() {
    if !may_load_bpf() {
        return;
    }
    let netns = lossy_loopback();
    eprintln!("| program | instructions verified |\n|---|---:|");
    for (name, elf) in OBJECTS {
        let loaded = load(name, elf);
        for (program, verified) in loaded.verified() {
            eprintln!("| {program} | {verified} |");
            assert!(
                (1..VERIFIED_MOST).contains(&verified),
                "{program}: {verified}"
            );
        }
        let info = netns
            .run(|| transfer(&loaded))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(info.retransmits > 0, "{name}: nothing was lost");
        assert!(info.cwnd_segments >= 1, "{name}");
    }
}
