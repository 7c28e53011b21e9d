// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of a program under `longhaul run` have the profile, and no others have it.

use crate::run_program::{RunningProgram, connect, listen_on_loopback, may_attach_bpf};
use longhaul_linux::{
    socket,
    supervise::{BlockedSignals, Program},
    tcp_info::TcpInfo,
    transient_cgroup::TransientCgroup,
};
use longhaul_testprograms::wait::{WAIT_LIMIT, wait_until};
use socket2::SockRef;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::AsFd,
};

fn congestion_control(stream: &TcpStream) -> String {
    let name = SockRef::from(stream).tcp_congestion().unwrap();
    let name = String::from_utf8(name).unwrap();
    name.trim_end_matches('\0').to_owned()
}

/// Congestion control that is not the system's default.
const CC: &str = "reno";

#[test]
fn connection_of_a_child_process_has_the_whole_profile() {
    if !may_attach_bpf() {
        return;
    }
    let (listener, address) = listen_on_loopback();
    let flags = [
        "--cc",
        CC,
        "--pacing-rate",
        "80mbit",
        "--initial-window",
        "64",
        "--notsent-lowat",
        "128KiB",
        "--keepalive",
        "40s",
        "--user-timeout",
        "30s",
        "--mss",
        "1200",
        "--dscp",
        "8",
    ];
    // (A subshell, whose number it prints.)
    let script = format!("( {}; echo $BASHPID; read || : )", connect(address));
    let mut running = RunningProgram::spawn(crate::run_program::command(
        &flags,
        &["bash", "-c", &script],
    ));
    let (other_end, _) = listener.accept().unwrap();
    let stream = running.socket(3);
    let socket = SockRef::from(&stream);
    assert_eq!(congestion_control(&stream), CC);
    assert_eq!(socket::pacing_rate(&stream).unwrap(), 10_000_000);
    assert_eq!(TcpInfo::of(&stream).unwrap().cwnd_segments, 64);
    assert_eq!(socket.tcp_notsent_lowat().unwrap(), 128 << 10);
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), 40);
    assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), 10);
    assert_eq!(socket.tcp_user_timeout().unwrap().unwrap().as_secs(), 30);
    assert!(socket.tcp_mss().unwrap() <= 1200);
    assert_eq!(socket.tos_v4().unwrap(), 32);
    // The other end belongs to this process.
    assert_eq!(socket::pacing_rate(&other_end).unwrap(), u64::MAX);
    assert_eq!(TcpInfo::of(&other_end).unwrap().cwnd_segments, 10);
    assert_eq!(running.finish().0, Some(0));
}

#[test]
fn applies_profile_over_ipv6() {
    if !may_attach_bpf() {
        return;
    }
    let listener = std::net::TcpListener::bind("[::1]:0").unwrap();
    let flags = ["--cc", CC, "--dscp", "8"];
    let running = RunningProgram::start(&flags, &connect(listener.local_addr().unwrap()));
    let stream = running.socket(3);
    assert_eq!(congestion_control(&stream), CC);
    assert_eq!(SockRef::from(&stream).tclass_v6().unwrap(), 32);
}

/// Starts a server under `longhaul run`; returns it with its address.
fn server(flags: &[&str]) -> (RunningProgram, SocketAddr) {
    let script = "import os, socket\n\
                  s = socket.create_server(('127.0.0.1', 0))\n\
                  print(os.getpid(), flush=True)\n\
                  print(s.getsockname()[1], flush=True)\n\
                  c = s.accept()[0]\n\
                  print(c.fileno(), flush=True)\n\
                  import sys; sys.stdin.read()";
    let mut running = RunningProgram::spawn(crate::run_program::command(
        flags,
        &["/usr/bin/python3", "-c", script],
    ));
    let port = running.read_line().parse().unwrap();
    (running, SocketAddr::from(([127, 0, 0, 1], port)))
}

#[test]
fn applies_profile_to_accepted_connections() {
    if !may_attach_bpf() {
        return;
    }
    let flags = [
        "--cc",
        CC,
        "--pacing-rate",
        "80mbit",
        "--initial-window",
        "33",
    ];
    let (mut running, address) = server(&flags);
    let client = TcpStream::connect(address).unwrap();
    let accepted = running.read_line().parse().unwrap();
    let stream = running.socket(accepted);
    assert_eq!(congestion_control(&stream), CC);
    assert_eq!(socket::pacing_rate(&stream).unwrap(), 10_000_000);
    assert_eq!(TcpInfo::of(&stream).unwrap().cwnd_segments, 33);
    assert_eq!(socket::pacing_rate(&client).unwrap(), u64::MAX);
}

#[test]
fn cwnd_cap_applies_from_the_first_segment() {
    if !may_attach_bpf() {
        return;
    }
    let (listener, address) = listen_on_loopback();
    let script = format!("{}; head -c 20000000 /dev/zero >&3", connect(address));
    for (window, first) in [("64", 40), ("20", 20)] {
        // 40 segments of 1000 bytes and their timestamps (12).
        let flags = [
            "--cc",
            CC,
            "--mss",
            "1012",
            "--cwnd-cap",
            "40000B",
            "--initial-window",
            window,
        ];
        let mut before = RunningProgram::start(&flags, &connect(address));
        let _other_end = listener.accept().unwrap();
        assert_eq!(TcpInfo::of(before.socket(3)).unwrap().cwnd_segments, first);
        before.finish();
    }
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut all).unwrap();
        all.len()
    });
    let flags = ["--cc", CC, "--mss", "1012", "--cwnd-cap", "40000B"];
    let mut running = RunningProgram::start(&flags, &script);
    assert_eq!(TcpInfo::of(running.socket(3)).unwrap().cwnd_segments, 40);
    assert_eq!(running.finish().0, Some(0));
    assert_eq!(reader.join().unwrap(), 20_000_000);
}

#[test]
fn converts_gap_to_a_rate_by_segment_size() {
    if !may_attach_bpf() {
        return;
    }
    let (_listener, address) = listen_on_loopback();
    let flags = ["--mss", "1012", "--inter-packet-gap", "1ms"];
    let running = RunningProgram::start(&flags, &connect(address));
    assert_eq!(socket::pacing_rate(&running.socket(3)).unwrap(), 1_000_000);
}

#[test]
fn pace_suffix_enables_pacing_without_a_limit() {
    if !may_attach_bpf() {
        return;
    }
    let (_listener, address) = listen_on_loopback();
    let running = RunningProgram::start(&["--cc", "reno+pace"], &connect(address));
    let stream = running.socket(3);
    // Anything but the value for "not paced" makes the kernel pace.
    assert_eq!(
        socket::pacing_rate(&stream).unwrap(),
        u64::from(u32::MAX - 1)
    );
    let running = RunningProgram::start(&["--cc", "reno"], &connect(address));
    assert_eq!(socket::pacing_rate(&running.socket(3)).unwrap(), u64::MAX);
}

/// The kernel computes the first pacing rate before it sets the window: twice the window each round trip.
#[test]
fn paces_a_larger_initial_window_by_its_own_size() {
    if !may_attach_bpf() {
        return;
    }
    let (_listener, address) = listen_on_loopback();
    let flags = [
        "--cc",
        "reno+pace",
        "--mss",
        "1012",
        "--initial-window",
        "64",
    ];
    let running = RunningProgram::start(&flags, &connect(address));
    let info = TcpInfo::of(running.socket(3)).unwrap();
    let window = u64::from(info.cwnd_segments) * u64::from(info.mss_bytes);
    let once = window * 1_000_000 / (u64::from(info.rtt_us) + 1);
    let least = once.min(u64::from(u32::MAX - 1));
    assert!(info.pacing_rate_bytes_per_s >= least, "{info:?}");
}

#[test]
fn keeps_own_algorithm_loaded_while_the_program_runs() {
    if !may_attach_bpf() {
        return;
    }
    let (_listener, address) = listen_on_loopback();
    let mut running = RunningProgram::start(&["--cc", "lh_scalable"], &connect(address));
    let stream = running.socket(3);
    assert_eq!(congestion_control(&stream), "lh_scalable");
    assert_eq!(running.finish().0, Some(0));
    // An open connection keeps it.
    assert_eq!(congestion_control(&stream), "lh_scalable");
}

/// Capture of IPv4 packets to a port as they leave, before GSO trains are segmented.
struct Capture {
    socket: socket2::Socket,
    port: u16,
}

impl Capture {
    fn new(port: u16) -> Self {
        const ETH_P_IP: u16 = 0x0800;
        let protocol = socket2::Protocol::from(i32::from(ETH_P_IP.to_be()));
        let kind = socket2::Type::DGRAM;
        let socket = socket2::Socket::new(socket2::Domain::PACKET, kind, Some(protocol)).unwrap();
        socket.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        Self { socket, port }
    }

    /// Returns the length of the next packet with data.
    fn length(&self) -> usize {
        let mut head = [0; 64];
        loop {
            // Longer packets are truncated.
            let read = (&self.socket).read(&mut head).expect("packets");
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let to = u16::from_be_bytes([head[22], head[23]]);
            if read >= 40 && head[9] == 6 && to == self.port && length > 200 {
                return length;
            }
        }
    }
}

/// Captures a program's packets at 100 Mbit/s until `found` accepts the lengths of 50 of them.
fn wait_for_packet_lengths(flags: &[&str], found: impl Fn(&[usize]) -> bool) {
    let (listener, address) = listen_on_loopback();
    let flags = [&["--mss", "1012", "--pacing-rate", "100mbit"], flags].concat();
    let script = format!("{}; cat /dev/zero >&3 & :", connect(address));
    let script = format!("{script}\ntrap 'kill %1' EXIT");
    let _running = RunningProgram::start(&flags, &script);
    let (mut other_end, _) = listener.accept().unwrap();
    std::thread::spawn(move || std::io::copy(&mut other_end, &mut std::io::sink()));
    let capture = Capture::new(address.port());
    wait_until(|| {
        let lengths: Vec<_> = (0..50).map(|_| capture.length()).collect();
        found(&lengths)
    });
}

/// Bytes of a single segment: 20 of IP, 20 of TCP, 12 of timestamps, and 1000 of payload.
const ONE_SEGMENT: usize = 1000 + 52;

#[test]
fn sends_one_segment_at_a_time_without_gso() {
    if !may_attach_bpf() {
        return;
    }
    wait_for_packet_lengths(&["--gso", "off"], |lengths| {
        lengths.iter().all(|length| *length <= ONE_SEGMENT)
    });
    // With GSO a millisecond of the rate is sent at once.
    wait_for_packet_lengths(&[], |lengths| {
        lengths.iter().any(|length| *length > 4 * ONE_SEGMENT)
    });
}

#[test]
fn record_counts_socket_activity() {
    if !may_attach_bpf() {
        return;
    }
    let (listener, address) = listen_on_loopback();
    let record = tempfile::NamedTempFile::new().unwrap();
    let path = record.path().to_str().unwrap();
    let script = format!("{}; printf hello >&3; cat <&3", connect(address));
    let words = ["bash", "-c", &script];
    let child = crate::run_program::command(&["--cc", CC, "-v", "--json", path], &words)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (mut other_end, _) = listener.accept().unwrap();
    let mut hello = [0; 5];
    other_end.read_exact(&mut hello).unwrap();
    other_end.write_all(b"and back").unwrap();
    drop(other_end);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"and back");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.contains("bash: 1 connection with reno"),
        "{message}"
    );
    let json: serde_json::Value = serde_json::from_reader(record.reopen().unwrap()).unwrap();
    assert_eq!(json["exit_code"], 0);
    assert_eq!(
        (&json["connected"], &json["accepted"]),
        (&1.into(), &0.into())
    );
    assert_eq!(json["congestion_control"], CC);
    // "and back", and the FIN's.
    assert_eq!(json["bytes_received"], 9);
    assert_eq!(json["refused"], serde_json::json!([]));
}

/// `run` itself would refuse this name; it stands for a congestion control that was unloaded meanwhile.
#[test]
fn counts_refused_settings_with_errno() {
    if !may_attach_bpf() {
        return;
    }
    let (listener, address) = listen_on_loopback();
    let cgroup = TransientCgroup::create("longhaul-test").unwrap();
    let profile = longhaul_congestion::sockets::profile::Profile {
        congestion_control: Some("nobody_has_it".into()),
        keepalive_s: Some(40),
        ..Default::default()
    };
    let attached =
        longhaul_congestion::sockets::profile::attach(&profile, cgroup.as_fd(), None, false)
            .unwrap();
    let signals = BlockedSignals::block().unwrap();
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &connect(address)]);
    let entrance = cgroup.open_procs().unwrap();
    let program = Program::start(&mut command, entrance, None, &signals).unwrap();
    assert!(program.wait().unwrap().success());
    let (stream, _) = listener.accept().unwrap();
    drop(stream);
    let counts = attached.counts().unwrap();
    assert_eq!(counts.connected, 1);
    let refused = longhaul_congestion::sockets::profile::Refused {
        setting: "congestion_control",
        sockets: 1,
        errno: 2,
    };
    assert_eq!(counts.refused, [refused]);
}
