// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `longhaul tap capture` on a link between two namespaces, compared with the kernel's counters.

use crate::tap_process::{Capture, Contents, Link, counter};
use longhaul_testnet::namespace::{may_use_namespaces, run_ip};
use longhaul_testprograms::{process::is_installed, wait::wait_until};
use rustix::{mount, process::Signal};
use std::{path::Path, process::Command};

#[test]
fn counts_packets_of_the_interface_and_segments_of_tcp() {
    if !may_use_namespaces() {
        return;
    }
    let link = Link::new("counts");
    let mut capture = Capture::start(&link, &[]);
    let before = (link.packet_count(), link.segments_sent());
    link.transfer(8_000_000, 5201);
    let (packets, segments) = (
        link.packet_count() - before.0,
        link.segments_sent() - before.1,
    );
    let file = capture.file();
    let summary = capture.stop();
    assert_eq!(counter(&summary, "packets"), packets, "{summary}");
    assert_eq!(counter(&summary, "received"), packets, "{summary}");
    assert_eq!(counter(&summary, "dropped"), 0, "{summary}");
    assert_eq!(counter(&summary, "wire_segments"), segments, "{summary}");
    assert!(segments > 2 * packets, "no super-packets: {summary}");

    let contents = Contents::read(&file);
    assert_eq!((contents.frames, contents.longest), (packets, 128));
    assert!(
        contents.super_packets > 0 && contents.damage.is_empty(),
        "{contents:?}"
    );
    let [statistics] = contents.statistics[..] else {
        panic!("{contents:?}");
    };
    assert_eq!(statistics.received, Some(packets));
    assert_eq!(statistics.if_dropped, Some(0));
}

#[test]
fn applies_filter_and_snap_length() {
    if !may_use_namespaces() {
        return;
    }
    let link = Link::new("filter");
    let flags = ["--filter", "udp dst port 7777", "--snap-length", "64"];
    let mut capture = Capture::start(&link, &flags);
    link.send_datagrams(5, 7777);
    link.send_datagrams(5, 7778);
    link.transfer(100_000, 7777);
    let file = capture.file();
    let summary = capture.stop();
    assert_eq!(counter(&summary, "packets"), 5, "{summary}");
    let contents = Contents::read(&file);
    assert_eq!((contents.frames, contents.longest), (5, 64));
}

#[test]
fn stops_after_count() {
    if !may_use_namespaces() {
        return;
    }
    let link = Link::new("count");
    let mut capture = Capture::start(&link, &["--count", "7", "--filter", "udp"]);
    link.send_datagrams(20, 7777);
    let file = capture.file();
    let summary = capture.wait_for_summary();
    assert_eq!(counter(&summary, "packets"), 7, "{summary}");
    assert_eq!(Contents::read(&file).frames, 7);
}

#[test]
fn counts_drops_of_a_small_ring() {
    if !may_use_namespaces() {
        return;
    }
    const SENT: u64 = 20_000;
    let link = Link::new("drops");
    let flags = ["--ring", "512KiB", "--filter", "udp dst port 7777"];
    let mut capture = Capture::start(&link, &flags);
    capture.signal(Signal::STOP);
    link.send_datagrams(SENT as usize, 7777);
    capture.signal(Signal::CONT);
    let file = capture.file();
    let summary = capture.stop();
    let [packets, received, dropped] =
        ["packets", "received", "dropped"].map(|name| counter(&summary, name));
    assert_eq!((received, packets + dropped), (SENT, SENT), "{summary}");
    assert!(packets > 1_000 && dropped > 1_000, "{summary}");
    assert!(counter(&summary, "ring_full") > 0, "{summary}");
    let contents = Contents::read(&file);
    assert_eq!(contents.frames, packets);
    assert_eq!(contents.statistics[0].if_dropped, Some(dropped));
}

#[test]
fn file_is_readable_after_sigkill() {
    if !may_use_namespaces() {
        return;
    }
    let link = Link::new("kill");
    let mut capture = Capture::start(&link, &["--filter", "udp"]);
    link.send_datagrams(100, 7777);
    let file = capture.file();
    // Everything is written within about a second without any request.
    wait_until(|| Contents::read(&file).frames == 100);
    capture.signal(Signal::KILL);
    assert!(!capture.wait().0);
    let contents = Contents::read(&file);
    assert_eq!(contents.frames, 100);
    assert!(contents.damage.is_empty(), "{contents:?}");
}

#[test]
fn rotates_files_and_removes_old_ones() {
    if !may_use_namespaces() {
        return;
    }
    let link = Link::new("rotate");
    let flags = [
        "--rotate",
        "1MB",
        "--files",
        "2",
        "--filter",
        "udp dst port 7777",
    ];
    let mut capture = Capture::start(&link, &flags);
    link.send_datagrams(20_000, 7777);
    let directory = capture.directory.path().to_owned();
    let summary = capture.stop();
    assert_eq!(counter(&summary, "dropped"), 0, "{summary}");
    let mut names: Vec<_> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // 3.4 MB need four files, or five if larger writes left more unused space at their ends.
    let four = ["trace-00003.pcapng", "trace-00004.pcapng"];
    let five = ["trace-00004.pcapng", "trace-00005.pcapng"];
    assert!(names == four || names == five, "{names:?}");
    for name in names {
        let path = directory.join(name);
        assert!(std::fs::metadata(&path).unwrap().len() <= 1_000_000);
        let contents = Contents::read(&path);
        assert!(
            contents.frames > 0 && contents.damage.is_empty(),
            "{contents:?}"
        );
        assert_eq!(contents.statistics.len(), 1);
    }
}

#[test]
fn reports_full_disk_once_and_keeps_the_file_readable() {
    if !may_use_namespaces() {
        return;
    }
    let disk = SmallDisk::of("size=1m");
    let link = Link::new("full");
    let file = disk.path().join("trace.pcapng");
    let spare = tempfile::tempdir().unwrap();
    let mut capture = Capture::start_to(&file, spare, &link, &["--filter", "udp dst port 7777"]);
    link.send_datagrams(20_000, 7777);
    let (success, output) = capture.wait();
    assert!(!success);
    let errors: Vec<_> = output
        .lines()
        .filter(|line| line.contains("longhaul:"))
        .collect();
    assert_eq!(errors.len(), 1, "{output}");
    assert!(errors[0].contains("No space left"), "{output}");
    let contents = Contents::read(&file);
    assert!(
        contents.frames > 1_000 && contents.damage.is_empty(),
        "{contents:?}"
    );
}

#[test]
fn completes_the_file_when_the_interface_is_deleted() {
    if !may_use_namespaces() {
        return;
    }
    let link = Link::new("gone");
    let mut capture = Capture::start(&link, &["--filter", "udp"]);
    link.send_datagrams(10, 7777);
    run_ip(&link.left, "link delete v0");
    let (success, output) = capture.wait();
    assert!(
        !success && output.contains("interface v0 is gone"),
        "{output}"
    );
    let contents = Contents::read(&capture.file());
    assert_eq!((contents.frames, contents.statistics.len()), (10, 1));
    assert!(contents.damage.is_empty(), "{contents:?}");
}

#[test]
#[ignore = "needs tshark: make test-peers"]
fn tshark_and_capinfos_read_the_file() {
    if !may_use_namespaces() || !is_installed("tshark") || !is_installed("capinfos") {
        return;
    }
    let link = Link::new("tshark");
    let mut capture = Capture::start(&link, &["--filter", "tcp"]);
    link.transfer(1_000_000, 5201);
    let file = capture.file();
    let packets = counter(&capture.stop(), "packets");
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .arg(&file)
            .output()
            .unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{program}: {complaints}");
        assert!(!complaints.contains("cut short"), "{program}: {complaints}");
        String::from_utf8(output.stdout).unwrap()
    };
    let output = run("capinfos", &["-T", "-M", "-r", "-m", "-c"]);
    assert!(output.contains(&packets.to_string()), "{output}");
    let output = run(
        "tshark",
        &[
            "-Y",
            "tcp.port == 5201",
            "-T",
            "fields",
            "-e",
            "tcp.len",
            "-r",
        ],
    );
    let payload: u64 = output
        .lines()
        .map(|line| line.parse::<u64>().unwrap())
        .sum();
    assert_eq!(output.lines().count() as u64, packets);
    assert!(payload >= 1_000_000, "{payload}");
}

/// Small file system, unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn of(size: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let size = std::ffi::CString::new(size).unwrap();
        let flags = mount::MountFlags::empty();
        mount::mount(
            "tmpfs",
            directory.path(),
            "tmpfs",
            flags,
            Some(size.as_c_str()),
        )
        .unwrap();
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The clean-up of the test environment finds a directory that is still mounted.
        let _ = mount::unmount(self.0.path(), mount::UnmountFlags::DETACH);
    }
}
