// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the command `longhaul tap analyze`: the same result for files in every form, and clear messages for bad
//! input.

use crate::tap_capture::{MSS, SERVER, Trace, pcap_header};
use longhaul_testprograms::process::assert_refused;
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// Temporary directory with captures.
struct CaptureDir(TempDir);

impl CaptureDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }
}

fn analyze(args: &[&str]) -> Output {
    Command::new(longhaul_testprograms::longhaul())
        .args(["tap", "analyze"])
        .args(args)
        .output()
        .unwrap()
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the result as JSON of a run that must succeed.
fn result(args: &[&str]) -> Value {
    let output = analyze(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts that the command fails with exit code 2 and one line that has all of `wanted`.
fn refused(args: &[&str], wanted: &[&str]) {
    let message = assert_refused(&analyze(args), 2, wanted);
    assert_eq!(message.lines().count(), 1, "{message}");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

/// Returns a trace of more than one batch, so that several threads have work.
fn many_flows() -> Trace {
    Trace::many(400, 30)
}

#[test]
fn output_is_identical_with_any_number_of_threads() {
    let directory = CaptureDir::new();
    let file = directory.put("many_flows.pcap", &many_flows().pcap());
    let written = |threads: &str| {
        let out = directory.path(threads);
        let out = out.to_str().unwrap();
        let flags = ["--threads", threads, "--flows", "10", "--csv", "-o", out];
        let analysis = result(&[&[file.as_str()], &flags[..]].concat());
        assert_eq!(analysis["files"][0]["packets"], many_flows().packets.len());
        let read = |name: &String| fs::read(directory.path(threads).join(name)).unwrap();
        let names = names(&directory.path(threads));
        assert!(
            names.iter().any(|name| name == "series-1ms.csv"),
            "{names:?}"
        );
        names
            .iter()
            .map(|name| (name.clone(), read(name)))
            .collect::<Vec<_>>()
    };
    let single_threaded = written("1");
    for threads in ["2", "5"] {
        for (one, other) in single_threaded.iter().zip(&written(threads)) {
            assert_eq!(one.0, other.0);
            assert!(one.1 == other.1, "{} differs with {threads} threads", one.0);
        }
    }
}

/// Rows are written in order of flow, direction and time twice: those that the batch closes, and those at the end.
#[test]
fn sorts_rows_by_flow_direction_and_time() {
    let directory = CaptureDir::new();
    let file = directory.put("many_flows.pcap", &Trace::many(40, 20).pcap());
    let out = directory.path("out");
    result(&[&file, "--csv", "-o", out.to_str().unwrap()]);
    let text = fs::read_to_string(out.join("series-1ms.csv")).unwrap();
    let key = |line: &str| {
        let mut fields = line.split(',');
        let mut number = || fields.next().unwrap().to_owned();
        let (flow, direction) = (number(), number());
        let flow: u64 = flow.parse().unwrap();
        let time_ns: u64 = number().parse().unwrap();
        (flow, direction != "upload", time_ns)
    };
    let keys: Vec<_> = text.lines().skip(1).map(key).collect();
    assert!(keys.len() > 100, "{} rows", keys.len());
    let steps_back = keys.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    assert!(steps_back <= 1, "{steps_back}");
}

#[test]
fn counts_a_transfer() {
    let directory = CaptureDir::new();
    let file = directory.put("one.pcap", &Trace::many(1, 20).pcap());
    let analysis = result(&[&file]);
    let flow = &analysis["flows"][0];
    assert_eq!(flow["number"], 1, "the first packet, as Wireshark counts");
    assert_eq!(flow["server"]["port"], SERVER.1);
    assert_eq!(flow["termination"], "finished");
    let upload = &flow["upload"];
    assert_eq!(upload["data"]["unique_bytes"], 20 * MSS);
    assert_eq!(upload["data"]["retransmitted_bytes"], MSS);
    assert_eq!(upload["data"]["fast_retransmissions"], 1);
    assert_eq!(upload["acks"]["duplicates"], 3);
    assert_eq!(flow["download"]["data"]["payload_bytes"], 0);
}

#[test]
fn reads_pipes_compressed_and_rotated_files_alike() {
    let directory = CaptureDir::new();
    let trace = many_flows();
    let bytes = trace.pcap();
    let flows = |args: &[&str]| result(args)["flows"].clone();
    let wanted = flows(&[&directory.put("whole.pcap", &bytes)]);

    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&bytes).unwrap();
    let packed = directory.put("whole.pcap.gz", &packed.finish().unwrap());
    assert!(flows(&[&packed]) == wanted, "gzip");

    let (third, end) = (trace.packets.len() / 3, trace.packets.len());
    let parts = [0..third, third..2 * third, 2 * third..end];
    let parts = parts.map(|part| trace.part(part).pcap());
    let name = |at: usize| directory.put(&format!("part{at}.pcap"), &parts[at]);
    assert!(
        flows(&[&name(2), &name(0), &name(1)]) == wanted,
        "rotated, in any order"
    );

    assert!(piped(&bytes)["flows"] == wanted, "standard input");
    let pcapng = flows(&[&directory.put("whole.pcapng", &trace.pcapng("eth0"))]);
    assert!(pcapng == wanted, "pcapng");
}

fn piped(bytes: &[u8]) -> Value {
    let mut child = Command::new(longhaul_testprograms::longhaul())
        .args(["tap", "analyze", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn treats_overlapping_captures_as_two_capture_points() {
    let directory = CaptureDir::new();
    let trace = Trace::many(3, 20);
    let near = directory.put("near.pcapng", &trace.pcapng("near0"));
    let far = directory.put("far.pcapng", &trace.later(10_000_000).pcapng("far0"));
    let analysis = result(&[&near, &far]);
    let points: Vec<_> = analysis["capture_points"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert_eq!(points.len(), 2);
    assert_eq!(
        (&points[0]["name"], &points[1]["name"]),
        (&"near0".into(), &"far0".into())
    );
    assert_eq!(points[0]["packets"], trace.packets.len());
    let flows = analysis["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 6);
    let flows_at = |point: u64| {
        flows
            .iter()
            .filter(|flow| flow["capture_point"] == point)
            .count()
    };
    assert_eq!((flows_at(0), flows_at(1)), (3, 3));
    let pairs = analysis["two_point_comparisons"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    let way = &pairs[0]["from_client"];
    assert!(way["matched"].as_u64() >= Some(20), "{way}");
    assert_eq!(
        (&way["lost"]["segments"], &way["reordered"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn treats_overlapping_unnamed_captures_as_two_capture_points() {
    let directory = CaptureDir::new();
    let trace = Trace::many(2, 20);
    let near = directory.put("near.pcap", &trace.pcap());
    let far = directory.put("far.pcap", &trace.later(10_000_000).pcap());
    let analysis = result(&[&near, &far]);
    assert_eq!(analysis["capture_points"].as_array().unwrap().len(), 2);
    assert_eq!(analysis["flows"].as_array().unwrap().len(), 4);
}

#[test]
fn sums_and_lists_flows_beyond_the_largest() {
    let directory = CaptureDir::new();
    let file = directory.put("many_flows.pcap", &Trace::many(1200, 3).pcap());
    let out = directory.path("out");
    let analysis = result(&[&file, "-o", out.to_str().unwrap(), "--memory", "16MB"]);
    let listed_flows = analysis["flows"].as_array().unwrap().len();
    assert_eq!(listed_flows, 1000);
    assert_eq!(analysis["remainder"]["flows"], 200);
    let listed = fs::read_to_string(out.join("flows.jsonl")).unwrap();
    assert_eq!(listed.lines().count(), 200);
}

#[test]
fn prints_a_short_summary() {
    let directory = CaptureDir::new();
    let file = directory.put("many_flows.pcap", &Trace::many(30, 20).pcap());
    let out = directory.path("out");
    let output = analyze(&[&file, "-o", out.to_str().unwrap(), "--flows", "3"]);
    let message = lossy_text(&output.stdout);
    assert!(message.contains("30 flows"), "{message}");
    assert!(
        message.contains("10.1.0.16:40016 → 10.9.0.1:5201"),
        "the largest: {message}"
    );
    assert!(message.contains("and 27 smaller flows"), "{message}");
    assert!(message.contains("36 KB"), "{message}");
}

#[test]
fn reports_an_empty_capture() {
    let directory = CaptureDir::new();
    let file = directory.put("empty.pcap", &pcap_header());
    let out = directory.path("out");
    let output = analyze(&[&file, "-o", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    let message = lossy_text(&output.stdout);
    assert!(
        message.contains("empty.pcap: an empty capture"),
        "{message}"
    );
}

#[test]
fn refuses_files_that_are_not_captures() {
    let directory = CaptureDir::new();
    let good = directory.put("good.pcap", &Trace::many(1, 5).pcap());
    let text = directory.put("notes.txt", b"not a capture at all, just words");
    let none = directory.put("none.pcap", b"");
    let out = directory.path("out");
    let out = out.to_str().unwrap();
    refused(
        &[&good, &text, "-o", out],
        &["notes.txt: not a capture", "pcap or pcapng", "\"not \""],
    );
    refused(&[&none, "-o", out], &["none.pcap", "empty"]);
    refused(&["/nowhere/a.pcap", "-o", out], &["/nowhere/a.pcap"]);
    refused(
        &[directory.0.path().to_str().unwrap(), "-o", out],
        &["is a directory", "*.pcap"],
    );
    let zstd = directory.put("a.pcap.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0]);
    refused(&[&zstd, "-o", out], &["a.pcap.zst", "zstd -d"]);
    assert!(!Path::new(out).exists());
}

#[test]
fn refuses_a_file_named_twice() {
    let files = CaptureDir::new();
    let capture = files.put("a.pcap", &pcap_header());
    let link = files.path("b.pcap");
    std::os::unix::fs::symlink(&capture, &link).unwrap();
    refused(&[&capture, &capture], &["a.pcap", "are one file"]);
    refused(
        &[&capture, link.to_str().unwrap()],
        &["a.pcap and ", "b.pcap are one file"],
    );
}

#[test]
fn refuses_flags_out_of_range() {
    let directory = CaptureDir::new();
    let file = directory.put("good.pcap", &Trace::many(1, 5).pcap());
    refused(
        &[&file, "--json", "--bin-width", "1ns"],
        &["--bin-width is 1ns", "10 us"],
    );
    refused(
        &[&file, "--json", "--bin-width", "2s"],
        &["--bin-width is 2s"],
    );
    refused(
        &[&file, "--json", "--memory", "1MB"],
        &["--memory is 1MB", "16 MB"],
    );
}

#[test]
fn refuses_ports_and_tunnels_that_it_does_not_know() {
    let directory = CaptureDir::new();
    let file = directory.put("good.pcap", &Trace::many(1, 5).pcap());
    for setting in [
        "udp.port==8472,vlan",
        "tcp.port==8472,vxlan",
        "udp.port==0,vxlan",
    ] {
        let output = analyze(&[&file, "--json", "--decode-as", setting]);
        let message = lossy_text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains(setting) && message.contains("l2tp, vxlan"),
            "{message}"
        );
    }
}

#[test]
fn refuses_output_directory_with_foreign_files() {
    let directory = CaptureDir::new();
    let file = directory.put("good.pcap", &Trace::many(1, 5).pcap());
    let out = directory.path("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("thesis.tex"), "years").unwrap();
    refused(&[&file, "-o", out.to_str().unwrap()], &["thesis.tex", "-o"]);
    assert_eq!(names(&out), ["thesis.tex"]);
}

#[test]
fn second_analysis_replaces_the_first() {
    let directory = CaptureDir::new();
    let file = directory.put("good.pcap", &Trace::many(1, 5).pcap());
    let out = directory.path("out");
    let out = out.to_str().unwrap();
    result(&[&file, "-o", out, "--csv"]);
    assert!(names(Path::new(out)).contains(&"series-1s.csv".to_owned()));
    result(&[&file, "-o", out]);
    assert!(!names(Path::new(out)).contains(&"series-1s.csv".to_owned()));
}

#[test]
fn analyzes_readable_parts_of_a_damaged_file() {
    let directory = CaptureDir::new();
    let trace = Trace::many(2, 20);
    let whole = trace.pcap();
    let cut = directory.put("cut.pcap", &whole[..whole.len() - 7]);
    let output = analyze(&[&cut, "-o", directory.path("cut").to_str().unwrap()]);
    let message = lossy_text(&output.stdout);
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    assert!(
        message.contains("cut.pcap: at byte") && message.contains("2 flows"),
        "{message}"
    );
    let analysis = result(&[&cut]);
    assert_eq!(analysis["files"][0]["packets"], trace.packets.len() - 1);

    let mut hole = whole.clone();
    let middle = hole.len() / 2;
    hole[middle..middle + 300].fill(0xff);
    let analysis = result(&[&directory.put("hole.pcap", &hole)]);
    let packets = analysis["files"][0]["packets"].as_u64().unwrap();
    let most = trace.packets.len() as u64;
    assert!((most - 10..most).contains(&packets), "{packets} of {most}");
    assert_eq!(analysis["flows"].as_array().unwrap().len(), 2);
    assert!(
        analysis["files"][0]["damages"][0]["at_byte"]
            .as_u64()
            .unwrap()
            > 0
    );
}

/// Changes the record header of the last packet but two: a date of 2038, a fraction of two seconds in nanoseconds.
#[test]
fn keeps_packets_with_odd_times_and_warns() {
    let directory = CaptureDir::new();
    let trace = Trace::many(1, 30);
    let after = |at: usize, word: u32| {
        let mut bytes = trace.pcap();
        let record = bytes.len() - 3 * (16 + 54);
        bytes[record + at..record + at + 4].copy_from_slice(&word.to_le_bytes());
        let file = directory.put("odd.pcap", &bytes);
        let mut found = result(&[&file]);
        assert_eq!(found["files"][0]["packets"], trace.packets.len());
        assert!(found["files"][0].get("damages").is_none(), "{found}");
        let flow = &found["flows"][0]["upload"]["data"]["payload_bytes"];
        assert_eq!(*flow, 31 * u64::from(MSS));
        found["files"][0]["warnings"].take()
    };
    let warning = &after(0, 1 << 31)[0];
    let text = warning.as_str().unwrap();
    assert!(
        text.starts_with("1 packet with a date more than a day"),
        "{text}"
    );
    let warning = &after(4, 2_000_000_000)[0];
    let text = warning.as_str().unwrap();
    assert!(text.starts_with("1 packet with a fraction"), "{text}");
    assert!(after(4, 7).is_null());
}

/// A file that says microseconds and has nanoseconds gives the same flows as one that says nanoseconds.
#[test]
fn reads_nanoseconds_in_a_file_of_microseconds() {
    let directory = CaptureDir::new();
    let mut bytes = Trace::many(3, 30).pcap();
    let expected = result(&[&directory.put("right.pcap", &bytes)])["flows"].take();
    bytes[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    let wrong = directory.put("wrong.pcap", &bytes);
    let mut found = result(&[&wrong]);
    assert_eq!(found["flows"].take(), expected);
    let output =
        lossy_text(&analyze(&[&wrong, "-o", directory.path("out").to_str().unwrap()]).stdout);
    assert!(output.contains("they have nanoseconds"), "{output}");
}

#[test]
fn counts_packets_whose_ip_length_is_beyond_the_frame() {
    let directory = CaptureDir::new();
    let trace = Trace::many(1, 30);
    let mut cut = trace.clone();
    cut.packets
        .iter_mut()
        .for_each(|(_, wire_len, bytes)| *wire_len = bytes.len() as u32);
    let expected = result(&[&directory.put("whole.pcap", &trace.pcap())])["flows"].take();
    let mut found = result(&[&directory.put("cut.pcap", &cut.pcap())]);
    assert_eq!(found["flows"].take(), expected);
    let warning = found["files"][0]["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("31 packets with an IP length"),
        "{warning}"
    );
}

/// Ethernet, IPv4 and TCP have 54 bytes; each header has timestamps behind that.
#[test]
fn warns_of_options_cut_by_the_snaplen() {
    let directory = CaptureDir::new();
    let warnings = |snaplen: usize| {
        let mut trace = Trace::many(1, 30);
        for (_, wire_len, bytes) in &mut trace.packets {
            bytes[46] = 8 << 4;
            bytes[17] += 12;
            bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
            *wire_len += 12;
            bytes.truncate(snaplen);
        }
        let file = directory.put("short.pcap", &trace.pcap());
        (
            trace.packets.len(),
            result(&[&file])["files"][0]["warnings"].take(),
        )
    };
    for snaplen in [54, 60, 65] {
        let (packets, warnings) = warnings(snaplen);
        let text = warnings[0].as_str().unwrap();
        let start =
            format!("{packets} packets with TCP options cut by the snaplen of {snaplen} bytes");
        assert!(text.starts_with(&start), "{text}");
        assert_eq!(warnings.as_array().unwrap().len(), 1);
    }
    assert!(warnings(66).1.is_null());
}

#[test]
fn names_link_types_that_it_does_not_know() {
    let directory = CaptureDir::new();
    let mut bytes = Trace::many(1, 5).pcap();
    bytes[20] = 147;
    let found = result(&[&directory.put("user.pcap", &bytes)]);
    let skipped = &found["files"][0]["skipped"]["unknown link type 147"];
    assert_eq!(*skipped, Trace::many(1, 5).packets.len());
}

#[test]
fn refuses_file_without_readable_packet() {
    let directory = CaptureDir::new();
    let mut damaged = pcap_header();
    damaged.extend([0xff; 5000]);
    let file = directory.put("damaged.pcap", &damaged);
    refused(&[&file, "--json"], &["damaged.pcap", "no readable packet"]);
}

#[test]
fn reports_damaged_compression() {
    let directory = CaptureDir::new();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&many_flows().pcap()).unwrap();
    let packed = packed.finish().unwrap();
    let file = directory.put("torn.pcap.gz", &packed[..packed.len() / 2]);
    let analysis = result(&[&file]);
    let damages = analysis["files"][0]["damages"].to_string();
    assert!(damages.contains("cannot be read any further"), "{damages}");
    assert!(!analysis["flows"].as_array().unwrap().is_empty());
}

/// The part that can be unpacked is less than one read. Its last record may be cut.
#[test]
fn analyzes_gzip_files_cut_short() {
    let directory = CaptureDir::new();
    let plain = Trace::many(3, 200).pcap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).unwrap();
    let mut packed = packed.finish().unwrap();
    packed.truncate(packed.len() * 3 / 4);
    let mut unpacked = Vec::new();
    let outcome = flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked);
    assert!(outcome.is_err() && unpacked.len() > plain.len() / 2);
    let of_plain = result(&[&directory.put("cut.pcap", &unpacked)]);
    let of_packed = result(&[&directory.put("cut.pcap.gz", &packed)]);
    assert_eq!(of_packed["flows"], of_plain["flows"]);
    let damages = of_packed["files"][0]["damages"].to_string();
    assert!(damages.contains("cannot be read any further"), "{damages}");

    let head = directory.put("head.pcap.gz", &packed[..12]);
    refused(&[&head, "--json"], &["head.pcap.gz: cannot be read: "]);
}

fn sample(name: &str) -> String {
    format!("{}/tests/captures/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn upload_verdicts(result: &Value) -> Vec<String> {
    let flows = result["flows"].as_array().unwrap().iter();
    let verdict = |flow: &Value| flow["upload"]["verdict"].as_str().unwrap().to_owned();
    flows.map(verdict).collect()
}

/// The receiver delays ACKs until its application reads. This makes round trips longer without any queue on the path.
#[test]
fn slow_reader_is_limited_by_receive_window() {
    let files = ["slow-reader-sender.pcap", "slow-reader-receiver.pcap"].map(sample);
    for file in &files {
        let verdicts = upload_verdicts(&result(&[file]));
        let [verdict] = verdicts.as_slice() else {
            panic!("{verdicts:?}")
        };
        assert!(verdict.contains("by the receive window"), "{verdict}");
        assert!(
            verdict.contains("application read more slowly"),
            "{verdict}"
        );
        assert!(!verdict.contains("standing queue"), "{verdict}");
    }
}

#[test]
fn connection_captured_at_both_ends_has_one_verdict() {
    let files = ["slow-reader-sender.pcap", "slow-reader-receiver.pcap"].map(sample);
    for order in [[&files[0], &files[1]], [&files[1], &files[0]]] {
        let found = result(&[order[0], order[1]]);
        let verdicts = upload_verdicts(&found);
        assert_eq!(verdicts.len(), 2);
        assert_eq!(verdicts[0], verdicts[1]);
        assert!(
            verdicts[0].starts_with("Captured at both ends: limited most of the time")
                && verdicts[0].contains("by the receive window"),
            "{}",
            verdicts[0]
        );
    }
}

/// The result has the flow of each capture point, the terminal the connection.
#[test]
fn connection_captured_at_both_ends_is_printed_once() {
    let files = ["slow-reader-sender.pcap", "slow-reader-receiver.pcap"].map(sample);
    let output = analyze(&[&files[0], &files[1]]);
    let text = lossy_text(&output.stdout);
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    assert_eq!(text.matches("upload  ").count(), 1, "{text}");
    assert_eq!(text.matches("Captured at both ends").count(), 1, "{text}");
    let ends = text.lines().find(|line| line.contains('→')).unwrap();
    assert!(
        ends.contains(" and ") && files.iter().all(|file| ends.contains(file.as_str())),
        "{ends}"
    );
}

/// Both captures were made on one machine.
#[test]
fn captures_by_one_clock_have_no_skew() {
    for (sender, receiver) in [
        ("slow-reader-sender.pcap", "slow-reader-receiver.pcap"),
        ("losses-sender.pcap", "losses-receiver.pcap"),
    ] {
        let found = result(&[&sample(sender), &sample(receiver)]);
        let pairs = found["two_point_comparisons"].as_array().unwrap();
        assert!(!pairs.is_empty());
        for pair in pairs {
            let skew = pair["skew_ppm"].as_f64().unwrap();
            assert!(skew.abs() < 1e-6, "{sender}: {skew} ppm");
        }
    }
}
