// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `longhaul link --capture`: the file has every segment, with times exact to the nanosecond.

use longhaul_linux::clock;
use longhaul_packet::capture::Verdict;
use longhaul_testnet::{
    link_process::{
        Testbed,
        capture_file::{CaptureFile, Segment},
        may_use_namespaces,
        traffic::{send_datagrams, transfer},
    },
    namespace::Namespace,
};
use longhaul_testprograms::wait::wait_until;
use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs::File,
    io::Read,
    net::UdpSocket,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    time::Duration,
};

const FORWARD: u32 = 0;
const BACKWARD: u32 = 1;

/// A link with a capture, and the directory of its file.
struct CapturedLink {
    bed: Testbed,
    directory: tempfile::TempDir,
}

impl CapturedLink {
    fn start(name: &str, addresses: [&str; 2], flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wan.pcapng");
        let flags = [&["--capture", path.to_str().unwrap()], flags].concat();
        Self {
            bed: Testbed::start(name, addresses, &flags),
            directory,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("wan.pcapng")
    }

    fn read(&self) -> CaptureFile {
        CaptureFile::read(std::fs::read(self.path()).unwrap())
    }

    /// Ends the link; returns the file and the reports, forward first.
    fn end(self) -> (CaptureFile, [Value; 2]) {
        let Self { bed, directory } = self;
        let records = bed.records_after_stop();
        let file = CaptureFile::read(std::fs::read(directory.path().join("wan.pcapng")).unwrap());
        assert_eq!(file.damage, [], "the file ends with a whole block");
        assert_eq!(file.interfaces, ["left", "right"]);
        (file, timing_reports(&records))
    }
}

fn timing_reports(records: &[Value]) -> [Value; 2] {
    ["forward", "backward"].map(|direction| {
        let mut reports = records.iter().filter(|r| r["record"] == "timing_report");
        reports
            .find(|r| r["direction"] == direction)
            .unwrap()
            .clone()
    })
}

fn verdict_of(segment: &Segment) -> Verdict {
    segment.emulator_record.unwrap().verdict
}

/// Returns the numbers, from 1, of the arrivals with that verdict.
fn numbers(arrivals: &[Segment], expected: Verdict) -> Vec<usize> {
    let numbered = (1..).zip(arrivals);
    let found = numbered.filter(|(_, record)| verdict_of(record) == expected);
    found.map(|(number, _)| number).collect()
}

/// Model of one direction with a constant rate, from its flags.
struct PathModel {
    nanos_a_byte: u64,
    delay_ns: u64,
    queue_limit: u64,
}

/// Start of a segment's transmission, and its length.
struct Transmission {
    begun: u64,
    len: u64,
}

impl PathModel {
    /// Computes from the arrivals alone the queue that each must have found and the time of its departure, and compares
    /// the file.
    fn check(&self, arrivals: &[Segment], departures: &[Segment]) {
        let mut departures = departures.iter();
        let mut sent: Vec<Transmission> = Vec::new();
        let mut free_at = 0;
        for arrival in arrivals {
            let (at, len) = (arrival.timestamp_ns, u64::from(arrival.wire_len));
            let waiting = sent.iter().rev().take_while(|earlier| earlier.begun > at);
            let queue: u64 = waiting.map(|earlier| earlier.len).sum();
            assert_eq!(arrival.emulator_record.unwrap().queue_bytes, queue as u32);
            match verdict_of(arrival) {
                Verdict::Lost => continue,
                Verdict::Dropped => assert!(queue + len > self.queue_limit, "there was room"),
                Verdict::Passed => assert!(queue + len <= self.queue_limit, "there was none"),
                Verdict::AckFiltered => panic!("no rule for ACKs is set"),
            }
            if verdict_of(arrival) == Verdict::Passed {
                let begun = at.max(free_at);
                free_at = begun + len * self.nanos_a_byte;
                sent.push(Transmission { begun, len });
                let Some(departure) = departures.next() else {
                    continue;
                };
                assert_eq!(departure.timestamp_ns, free_at + self.delay_ns);
                assert_eq!(departure.wire_len, arrival.wire_len);
                assert_eq!(departure.headers, arrival.headers);
            }
        }
        assert!(
            departures.next().is_none(),
            "nothing came out that did not come"
        );
    }
}

#[test]
fn records_transfer_to_the_nanosecond() {
    if !may_use_namespaces() {
        return;
    }
    let model = PathModel {
        nanos_a_byte: 80,
        delay_ns: 5_000_000,
        queue_limit: 30_000,
    };
    let settings = ["--rate", "100mbit", "--delay", "5ms", "--queue", "30KB"];
    let loss = ["--backward", "loss=at:50,60-62,700"];
    for flags in [
        ["--threads", "1", "--delivery", "batched"],
        ["--threads", "2", "--delivery", "per-packet"],
    ] {
        let flags = [&settings[..], &loss, &flags].concat();
        let captured = CapturedLink::start("capture", ["10.66.20.1/30", "10.66.20.2/30"], &flags);
        transfer(&captured.bed, 4 << 20);
        let (file, reports) = captured.end();
        for direction in [FORWARD, BACKWARD] {
            let (arrivals, departures) = (file.arrivals(direction), file.departures(direction));
            model.check(&arrivals, &departures);
            let report = &reports[direction as usize];
            assert_eq!(report["segments"], arrivals.len());
            assert_eq!(report["delivered_segments"], departures.len());
            let dropped = numbers(&arrivals, Verdict::Dropped).len();
            assert_eq!(report["drops"]["overflow"], dropped);
            assert_eq!(dropped > 0, direction == BACKWARD, "slow start overflows");
            assert_eq!(report["capture_dropped"]["arrivals"], 0);
        }
        let lost = numbers(&file.arrivals(BACKWARD), Verdict::Lost);
        assert_eq!(lost, [50, 60, 61, 62, 700]);
        assert!(numbers(&file.arrivals(FORWARD), Verdict::Lost).is_empty());
        assert_complete_statistics(&file, &reports);
    }
}

/// Asserts that the statistics of each interface count all arrivals and departures there, and none dropped.
fn assert_complete_statistics(file: &CaptureFile, reports: &[Value; 2]) {
    for (interface, out) in [(0, &reports[1]), (1, &reports[0])] {
        let statistics = &file.statistics[interface];
        let here = |segment: &&Segment| segment.interface == interface as u32;
        let segments = file.segments.iter().filter(here).count() as u64;
        assert_eq!(statistics.received, Some(segments));
        assert_eq!(statistics.if_dropped, Some(0));
        let comment = format!("\"direction\":{}", out["direction"]);
        assert!(file.contains(&comment), "its self-report is there");
    }
}

#[test]
fn each_segment_of_super_packet_has_own_headers() {
    if !may_use_namespaces() {
        return;
    }
    let captured = CapturedLink::start("headers", ["10.66.21.1/30", "10.66.21.2/30"], &[]);
    transfer(&captured.bed, 1 << 20);
    let (file, _) = captured.end();
    let sent = file.arrivals(BACKWARD);
    let first = TcpSegment::of(&sent[0]).seq;
    let mut next = first;
    for segment in &sent {
        let tcp = TcpSegment::of(segment);
        let end = tcp.seq.wrapping_add(tcp.len);
        // Retransmissions begin earlier.
        assert!(tcp.seq.wrapping_sub(next) as i32 <= 0, "no gap");
        if end.wrapping_sub(next) as i32 > 0 {
            next = end;
        }
        assert!(segment.wire_len <= 1_500);
    }
    let syn_and_fin = 2;
    assert_eq!(next.wrapping_sub(first), (1 << 20) + syn_and_fin);
}

/// Sequence range of a segment.
struct TcpSegment {
    seq: u32,
    len: u32,
}

impl TcpSegment {
    /// Parses IPv4 headers, which must be complete and have the right length.
    fn of(segment: &Segment) -> Self {
        let (ip, tcp) = segment.headers.split_at(20);
        let total = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
        assert_eq!(total, segment.wire_len);
        let header = usize::from(tcp[12] >> 4) * 4;
        assert_eq!(tcp.len(), header, "headers and nothing else");
        let (syn, fin) = (u32::from(tcp[13] >> 1 & 1), u32::from(tcp[13] & 1));
        Self {
            seq: u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]),
            len: total - 20 - header as u32 + syn + fin,
        }
    }
}

#[test]
fn records_numbered_losses() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--forward", "loss=at:2,5-7", "--delay", "1ms"];
    let captured = CapturedLink::start("lost", ["10.66.22.1/30", "10.66.22.2/30"], &flags);
    assert_eq!(send_datagrams(&captured.bed, 10, 6), [1, 3, 4, 8, 9, 10]);
    let (file, _) = captured.end();
    let arrivals = file.arrivals(FORWARD);
    assert_eq!(numbers(&arrivals, Verdict::Lost), [2, 5, 6, 7]);
    let delays = numbers(&arrivals, Verdict::Passed)
        .into_iter()
        .zip(file.departures(FORWARD));
    for (number, departure) in delays {
        assert_eq!(
            departure.timestamp_ns,
            arrivals[number - 1].timestamp_ns + 1_000_000
        );
    }
}

#[test]
fn records_duplicates_and_corruption_at_departure() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--forward", "duplicate=100%", "--forward", "corrupt=100%"];
    let captured = CapturedLink::start("damage", ["10.66.23.1/30", "10.66.23.2/30"], &flags);
    assert_eq!(
        send_datagrams(&captured.bed, 50, 50).len(),
        50,
        "the copies are sound"
    );
    let (file, _) = captured.end();
    let (arrivals, departures) = (file.arrivals(FORWARD), file.departures(FORWARD));
    assert_eq!((arrivals.len(), departures.len()), (50, 100));
    let wrong_bits = |pair: &[Segment], arrival: &Segment| -> u32 {
        let ip = pair
            .iter()
            .flat_map(|record| record.headers.iter().zip(&arrival.headers).take(20));
        ip.map(|(out, came)| (out ^ came).count_ones()).sum()
    };
    let pairs = departures.chunks(2).zip(&arrivals);
    let wrong: Vec<_> = pairs
        .map(|(pair, arrival)| wrong_bits(pair, arrival))
        .collect();
    assert!(wrong.iter().all(|bits| *bits <= 1), "{wrong:?}");
    assert!(wrong.contains(&1), "some bits are of IP headers");
}

#[test]
fn distinguishes_thinned_from_lost_acks() {
    if !may_use_namespaces() {
        return;
    }
    let flags = ["--forward", "ack-thin=2", "--delay", "2ms"];
    let captured = CapturedLink::start("thinned", ["10.66.24.1/30", "10.66.24.2/30"], &flags);
    transfer(&captured.bed, 8 << 20);
    let (file, reports) = captured.end();
    let thinned = numbers(&file.arrivals(FORWARD), Verdict::AckFiltered).len();
    assert!(thinned > 0);
    assert_eq!(reports[0]["drops"]["ack_filtering"], thinned);
}

#[test]
fn killed_link_leaves_readable_file() {
    if !may_use_namespaces() {
        return;
    }
    let captured = CapturedLink::start("capkill", ["10.66.25.1/30", "10.66.25.2/30"], &[]);
    assert_eq!(send_datagrams(&captured.bed, 10, 10).len(), 10);
    wait_until(|| captured.read().segments.len() >= 20);
    let CapturedLink { bed, directory } = captured;
    let _bed = bed.kill();
    let file = CaptureFile::read(std::fs::read(directory.path().join("wan.pcapng")).unwrap());
    assert_eq!(
        (file.arrivals(FORWARD).len(), file.departures(FORWARD).len()),
        (10, 10)
    );
}

/// Both interfaces exist, so the second link never starts.
#[test]
fn failed_start_keeps_old_file() {
    if !may_use_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let old = directory.path().join("old.pcapng");
    std::fs::write(&old, "what was recorded before").unwrap();
    let bed = Testbed::start("taken", ["10.66.29.1/30", "10.66.29.2/30"], &[]);
    let end = |end: &Namespace, host: u8| format!("{}:wan0:10.66.29.{host}/30", end.name());
    let second = Command::new(longhaul_testprograms::longhaul())
        .args(["link", "--name", bed.left.name(), "--capture"])
        .arg(&old)
        .args(["--left", &end(&bed.left, 1), "--right", &end(&bed.right, 2)])
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert_eq!(std::fs::read(&old).unwrap(), b"what was recorded before");
}

/// The file is a pipe that is not read until the link has ended.
#[test]
fn stalled_disk_drops_records_but_no_traffic() {
    if !may_use_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pipe = fifo(directory.path());
    let (go, wait) = mpsc::channel::<()>();
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || read_later(&pipe, &wait)
    });
    let flags = [
        "--capture",
        pipe.to_str().unwrap(),
        "--capture-memory",
        "5MB",
    ];
    let bed = Testbed::start("stall", ["10.66.26.1/30", "10.66.26.2/30"], &flags);
    transfer(&bed, 48 << 20);
    go.send(()).unwrap();
    let reports = timing_reports(&bed.records_after_stop());
    let file = CaptureFile::read(reader.join().unwrap());
    for direction in [FORWARD, BACKWARD] {
        let report = &reports[direction as usize];
        let dropped = |which: &str| report["capture_dropped"][which].as_u64().unwrap();
        let arrivals = file.arrivals(direction).len() as u64 + dropped("arrivals");
        let departures = file.departures(direction).len() as u64 + dropped("departures");
        assert_eq!(report["segments"], arrivals);
        assert_eq!(report["delivered_segments"], departures);
        assert_eq!(report["no_memory"], 0);
    }
    let records_dropped = |direction: usize, which| {
        reports[direction]["capture_dropped"][which]
            .as_u64()
            .unwrap()
    };
    assert!(
        records_dropped(1, "arrivals") > 0,
        "48 MiB need more than 5 MB of records"
    );
    let left = records_dropped(0, "arrivals") + records_dropped(1, "departures");
    let right = records_dropped(1, "arrivals") + records_dropped(0, "departures");
    let in_file: Vec<_> = file
        .statistics
        .iter()
        .map(|statistics| statistics.if_dropped)
        .collect();
    assert_eq!(in_file, [Some(left), Some(right)]);
}

/// The file is a pipe whose reader closes it.
#[test]
fn disk_error_ends_file_but_not_link() {
    if !may_use_namespaces() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let pipe = fifo(directory.path());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            File::open(pipe)
                .unwrap()
                .read_exact(&mut [0; 1000])
                .unwrap();
        }
    });
    let flags = ["--capture", pipe.to_str().unwrap()];
    let bed = Testbed::start("broken", ["10.66.28.1/30", "10.66.28.2/30"], &flags);
    transfer(&bed, 8 << 20);
    reader.join().unwrap();
    transfer(&bed, 1 << 20);
    let (status, stderr) = bed.stop_with_status();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("the capture ends here: Broken pipe"),
        "{stderr}"
    );
    assert!(!stderr.contains(" 0 dropped"), "{stderr}");
}

fn fifo(directory: &Path) -> PathBuf {
    let pipe = directory.join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    pipe
}

fn read_later(pipe: &Path, go: &mpsc::Receiver<()>) -> Vec<u8> {
    let mut pipe = File::open(pipe).unwrap();
    go.recv().unwrap();
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns whether `tshark` is installed. If not, the test fails, or is skipped with ALLOW_SKIP=1.
fn has_tshark() -> bool {
    let installed = Command::new("tshark").arg("--version").output().is_ok();
    longhaul_testprograms::skip::require(installed, "tshark")
}

#[test]
#[ignore = "needs tshark: make test-peers"]
fn tshark_counts_agree() {
    if !may_use_namespaces() || !has_tshark() {
        return;
    }
    let flags = ["--delay", "1ms", "--forward", "loss=at:3"];
    let captured = CapturedLink::start("tshark", ["10.66.27.1/30", "10.66.27.2/30"], &flags);
    transfer(&captured.bed, 1 << 20);
    let CapturedLink { bed, directory } = captured;
    bed.stop();
    let path = directory.path().join("wan.pcapng");
    let file = CaptureFile::read(std::fs::read(&path).unwrap());
    let output = Command::new("tshark")
        .args(["-q", "-z", "io,stat,0", "-r"])
        .arg(&path)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let row = stdout.lines().find(|line| line.contains("<>")).unwrap();
    let counts: Vec<u64> = row
        .rsplit('|')
        .filter_map(|cell| cell.trim().parse().ok())
        .collect();
    let bytes = file
        .segments
        .iter()
        .map(|record| u64::from(record.wire_len));
    let [seen_bytes, frames] = counts[..] else {
        panic!("{stdout}");
    };
    assert_eq!(frames, file.segments.len() as u64, "{stdout}");
    assert_eq!(seen_bytes, bytes.sum::<u64>(), "{stdout}");
}

/// A packet that waits in the interface has arrived when it was sent, not when the link could read it.
#[test]
fn arrival_is_the_time_of_sending_even_if_the_link_is_stopped() {
    if !may_use_namespaces() {
        return;
    }
    let link = CapturedLink::start("waits", ["10.66.45.1/30", "10.66.45.2/30"], &[]);
    link.bed.pause();
    let socket = link
        .bed
        .left
        .run(|| UdpSocket::bind(("10.66.45.1", 0)))
        .unwrap();
    let times: Vec<_> = (0..3)
        .map(|_| {
            let before = clock::wall();
            socket.send_to(&[0; 100], "10.66.45.2:9").unwrap();
            let after = clock::wall();
            std::thread::sleep(Duration::from_millis(50));
            (before.as_nanos(), after.as_nanos())
        })
        .collect();
    link.bed.signal(Signal::CONT);
    let (file, [forward, _]) = link.end();
    let arrivals = file.arrivals(FORWARD);
    assert_eq!(arrivals.len(), 3);
    for (arrival, (before, after)) in arrivals.iter().zip(times) {
        // Conversion between two clocks, and both directions of rounding.
        let range = before - CLOCKS_NS..=after + CLOCKS_NS;
        assert!(
            range.contains(&arrival.timestamp_ns),
            "{range:?} {}",
            arrival.timestamp_ns
        );
    }
    assert_eq!(forward["kernel_arrivals"], true);
    assert!(
        forward["lateness"]["max_us"].as_f64().unwrap() >= 150_000.0,
        "{forward}"
    );
}

/// Most by which the conversion of a time between the wall clock and the clock since boot may be wrong, while the thread
/// is interrupted between the two.
const CLOCKS_NS: u64 = 20_000_000;
