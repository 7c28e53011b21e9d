// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic of real programs over an emulated path, captured by tcpdump at both ends.

use crate::tap_peers::ssh;
use longhaul_linux::netns::Netns;
use longhaul_testnet::link_process::{Testbed, traffic::serve_iperf3};
use longhaul_testprograms::{process::Running, wait::wait_for_line};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Payload of the last packet of a capture.
const END: &[u8] = b"the end of this capture";
/// Discard port (RFC 863), on which no program listens.
const DISCARD: u16 = 9;
/// Size of the file that nginx serves, bytes.
const FILE_BYTES: usize = 2 << 20;

/// Traffic of one test: path and program.
pub(crate) struct Traffic<'a> {
    pub(crate) name: &'a str,
    pub(crate) addresses: [&'a str; 2],
    /// Flags of `longhaul link`.
    pub(crate) link: &'a [&'a str],
    pub(crate) program: Program<'a>,
}

/// Client program on the left end with its flags; its server runs on the right end.
pub(crate) enum Program<'a> {
    Iperf3(&'a [&'a str]),
    Curl(&'a [&'a str]),
    /// A transfer, then lines that are echoed one by one.
    Ssh,
}

impl Traffic<'_> {
    /// Returns whether the kernel passes several segments on as one packet.
    pub(crate) fn has_super_packets(&self) -> bool {
        !self.link.contains(&"--no-offload")
    }

    /// Runs the program and returns the captures of both ends.
    pub(crate) fn capture(&self, directory: &Path) -> [PathBuf; 2] {
        let bed = Testbed::start(self.name, self.addresses, self.link);
        let files = ["left.pcap", "right.pcap"].map(|name| directory.join(name));
        let captures = [
            tcpdump(&bed.left, &files[0]),
            tcpdump(&bed.right, &files[1]),
        ];
        match self.program {
            Program::Iperf3(flags) => iperf3(&bed, flags),
            Program::Curl(flags) => curl(&bed, flags, directory),
            Program::Ssh => ssh::run(&bed, directory),
        }
        // Waits for packets on the path. Later packets are not in the captures.
        std::thread::sleep(Duration::from_millis(300));
        end_of_capture(&bed.left, bed.right_address(), &files[0]);
        end_of_capture(&bed.right, bed.left_address(), &files[1]);
        captures.into_iter().for_each(interrupt);
        files
    }
}

pub(crate) fn spawn(netns: &Netns, command: &mut Command) -> Running {
    Running(netns.run(|| command.spawn()).unwrap())
}

/// Flushes tcpdump's ring, which passes packets on by the block and loses the last block at the end. A marker packet
/// is sent until it is in the file, and with it all packets before.
fn end_of_capture(netns: &Netns, to: IpAddr, file: &Path) {
    let socket = netns.run(|| UdpSocket::bind((unspecified(to), 0))).unwrap();
    let is_there = || {
        let bytes = fs::read(file).unwrap();
        bytes.windows(END.len()).any(|bytes| bytes == END)
    };
    for _ in 0..1000 {
        socket.send_to(END, (to, DISCARD)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        if is_there() {
            return;
        }
    }
    panic!("tcpdump does not write {}", file.display());
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Starts a capture of headers and returns when it has begun.
fn tcpdump(netns: &Netns, file: &Path) -> Running {
    let mut command = Command::new("tcpdump");
    // Without -Z, tcpdump would change to a user that may not write there.
    command
        .args(["-Z", "root", "-i", "wan0", "-s", "128", "-B", "16384"])
        .args(["--immediate-mode", "-U", "-w"])
        .arg(file);
    let filter = format!("tcp or udp port {DISCARD}");
    command.arg(filter).stderr(Stdio::piped());
    let mut running = spawn(netns, &mut command);
    wait_for_line(running.stderr.take().unwrap(), "listening on");
    running
}

fn interrupt(mut running: Running) {
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    running.wait().unwrap();
}

fn iperf3(bed: &Testbed, flags: &[&str]) {
    let _server = serve_iperf3(&bed.right);
    let mut client = Command::new("iperf3");
    client
        .arg("-c")
        .arg(bed.right_address().to_string())
        .args(flags);
    succeed(&bed.left, &mut client);
}

fn curl(bed: &Testbed, flags: &[&str], directory: &Path) {
    let address = bed.right_address();
    let _nginx = nginx(&bed.right, address, directory);
    let mut client = Command::new("curl");
    client
        .args(["--silent", "--fail", "--output", "/dev/null"])
        .args(flags);
    client.arg(format!("http://{}/file", SocketAddr::new(address, 8080)));
    succeed(&bed.left, &mut client);
}

fn succeed(netns: &Netns, command: &mut Command) {
    let output = netns.run(|| command.stdin(Stdio::null()).output()).unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Starts nginx in the foreground and returns when it answers.
fn nginx(netns: &Netns, address: IpAddr, directory: &Path) -> Running {
    let root = directory.join("www");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), vec![7; FILE_BYTES]).unwrap();
    let at = directory.display();
    let listen = SocketAddr::new(address, 8080);
    let config = format!(
        "daemon off; master_process off; user root; pid {at}/nginx.pid; error_log {at}/error.log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen {listen}; root {at}/www; }} }}\n"
    );
    let file = directory.join("nginx.conf");
    fs::write(&file, config).unwrap();
    let mut command = Command::new("nginx");
    command
        .arg("-c")
        .arg(&file)
        .arg("-e")
        .arg(directory.join("error.log"));
    let mut running = spawn(netns, &mut command);
    let answers = || netns.run(|| TcpStream::connect(listen)).is_ok();
    while !answers() {
        assert!(running.try_wait().unwrap().is_none(), "nginx ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}
