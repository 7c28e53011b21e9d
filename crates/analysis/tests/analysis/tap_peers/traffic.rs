// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs over an emulated path, captured by tcpdump at both ends.

use crate::tap_peers::ssh;
use longhaul_linux::netns::Netns;
use longhaul_testnet::link_process::Testbed;
use std::{
    fs,
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// What the last packet of a capture has in it.
const END: &[u8] = b"the end of this capture";
/// Nobody listens there (RFC 863).
const DISCARD: u16 = 9;
/// Bytes that nginx serves.
const FILE_BYTES: usize = 2 << 20;

/// What runs where.
pub(crate) struct Traffic<'a> {
    pub(crate) name: &'a str,
    pub(crate) addresses: [&'a str; 2],
    /// Flags of `longhaul link`.
    pub(crate) link: &'a [&'a str],
    pub(crate) program: Program<'a>,
}

/// The left end's program with these flags; the right end has what it needs.
pub(crate) enum Program<'a> {
    Iperf3(&'a [&'a str]),
    Curl(&'a [&'a str]),
    /// A transfer, and lines that are answered one by one.
    Ssh,
}

/// Ends with this.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Already dead is as good.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Traffic<'_> {
    /// Whether the kernel hands several segments over as one packet.
    pub(crate) fn has_super_packets(&self) -> bool {
        !self.link.contains(&"--no-offload")
    }

    /// Runs it: the captures of both ends.
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
        // What is still on the way. If it is more, the captures end before it.
        std::thread::sleep(Duration::from_millis(300));
        end_of_capture(&bed.left, bed.right_address(), &files[0]);
        end_of_capture(&bed.right, bed.left_address(), &files[1]);
        captures.into_iter().for_each(interrupt);
        files
    }
}

pub(crate) fn spawn(place: &Netns, command: &mut Command) -> Running {
    Running(place.run(|| command.spawn()).unwrap())
}

/// tcpdump's ring hands packets over by the block, and what is in the last one when it ends is lost. So a
/// last packet is sent, until it is in the file, and everything before it with it.
fn end_of_capture(place: &Netns, to: IpAddr, file: &Path) {
    let socket = place.run(|| UdpSocket::bind((unspecified(to), 0))).unwrap();
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

/// Captures headers until it is told to end. It has begun when this returns.
fn tcpdump(place: &Netns, file: &Path) -> Running {
    let mut command = Command::new("tcpdump");
    // As root it would change to a user that may not write there.
    command
        .args(["-Z", "root", "-i", "wan0", "-s", "128", "-B", "16384"])
        .args(["--immediate-mode", "-U", "-w"])
        .arg(file);
    let filter = format!("tcp or udp port {DISCARD}");
    command.arg(filter).stderr(Stdio::piped());
    let mut running = spawn(place, &mut command);
    let mut said = BufReader::new(running.0.stderr.take().unwrap()).lines();
    let begun = said.any(|line| line.unwrap().contains("listening on"));
    assert!(begun, "tcpdump did not begin");
    // Whatever else it says must have somewhere to go.
    std::thread::spawn(move || said.for_each(drop));
    running
}

fn interrupt(mut running: Running) {
    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    running.0.wait().unwrap();
}

fn iperf3(bed: &Testbed, flags: &[&str]) {
    let mut server = Command::new("iperf3");
    server
        .args(["-s", "-1", "--forceflush"])
        .stdout(Stdio::piped());
    let mut server = spawn(&bed.right, &mut server);
    let mut said = BufReader::new(server.0.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("listening")));
    std::thread::spawn(move || said.for_each(drop));
    let mut client = Command::new("iperf3");
    client
        .arg("-c")
        .arg(bed.right_address().to_string())
        .args(flags);
    succeed(&bed.left, &mut client);
}

fn curl(bed: &Testbed, flags: &[&str], directory: &Path) {
    let address = bed.right_address();
    // To see whether nginx answers, beside it.
    succeed(
        &bed.right,
        Command::new("ip").args(["link", "set", "lo", "up"]),
    );
    let _nginx = nginx(&bed.right, address, directory);
    let mut client = Command::new("curl");
    client
        .args(["--silent", "--fail", "--output", "/dev/null"])
        .args(flags);
    client.arg(format!("http://{}/file", SocketAddr::new(address, 8080)));
    succeed(&bed.left, &mut client);
}

fn succeed(place: &Netns, command: &mut Command) {
    let output = place.run(|| command.stdin(Stdio::null()).output()).unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// nginx in the foreground; it answers when this returns.
fn nginx(place: &Netns, address: IpAddr, directory: &Path) -> Running {
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
    let mut running = spawn(place, &mut command);
    let answers = || place.run(|| TcpStream::connect(listen)).is_ok();
    while !answers() {
        assert!(running.0.try_wait().unwrap().is_none(), "nginx ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}
