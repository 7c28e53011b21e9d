// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul tap analyze` as a command: files in every form, the same result from all of them, and
//! words for what is not as it should be.

use crate::tap_capture::{MSS, SERVER, Trace, pcap_header};
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// A directory with captures.
struct Desk(TempDir);

impl Desk {
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
    Command::new(longhaul_testbed::longhaul())
        .args(["tap", "analyze"])
        .args(args)
        .output()
        .unwrap()
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The result as JSON, of a run that must go well.
fn result(args: &[&str]) -> Value {
    let output = analyze(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", words(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Refused with exit code 2 and one line that has all of `wanted`.
fn refused(args: &[&str], wanted: &[&str]) {
    let output = analyze(args);
    let said = words(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in wanted {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let mut names: Vec<_> = entries.map(|entry| name(entry.unwrap())).collect();
    names.sort();
    names
}

/// More than a load, so that threads have something to share.
fn crowd() -> Trace {
    Trace::many(400, 30)
}

#[test]
fn the_number_of_threads_changes_not_one_byte() {
    let desk = Desk::new();
    let file = desk.put("crowd.pcap", &crowd().pcap());
    let written = |threads: &str| {
        let out = desk.path(threads);
        let out = out.to_str().unwrap();
        let flags = ["--threads", threads, "--flows", "10", "--csv", "-o", out];
        let analysis = result(&[&[file.as_str()], &flags[..]].concat());
        assert_eq!(analysis["files"][0]["packets"], crowd().packets.len());
        let read = |name: &String| fs::read(desk.path(threads).join(name)).unwrap();
        let names = names(&desk.path(threads));
        assert!(
            names.iter().any(|name| name == "series-1ms.csv"),
            "{names:?}"
        );
        names
            .iter()
            .map(|name| (name.clone(), read(name)))
            .collect::<Vec<_>>()
    };
    let alone = written("1");
    for threads in ["2", "5"] {
        for (one, other) in alone.iter().zip(&written(threads)) {
            assert_eq!(one.0, other.0);
            assert!(one.1 == other.1, "{} differs with {threads} threads", one.0);
        }
    }
}

/// What one load closes, and what the end does, each in order of flow, direction and time.
#[test]
fn rows_have_an_order() {
    let desk = Desk::new();
    let file = desk.put("crowd.pcap", &Trace::many(40, 20).pcap());
    let out = desk.path("out");
    result(&[&file, "--csv", "-o", out.to_str().unwrap()]);
    let text = fs::read_to_string(out.join("series-1ms.csv")).unwrap();
    let place = |line: &str| {
        let mut fields = line.split(',');
        let mut number = || fields.next().unwrap().to_owned();
        let (flow, direction) = (number(), number());
        let flow: u64 = flow.parse().unwrap();
        let time_ns: u64 = number().parse().unwrap();
        (flow, direction != "upload", time_ns)
    };
    let places: Vec<_> = text.lines().skip(1).map(place).collect();
    assert!(places.len() > 100, "{} rows", places.len());
    let steps_back = places.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    assert!(steps_back <= 1, "{steps_back}");
}

#[test]
fn a_transfer_is_counted() {
    let desk = Desk::new();
    let file = desk.put("one.pcap", &Trace::many(1, 20).pcap());
    let analysis = result(&[&file]);
    let flow = &analysis["flows"][0];
    assert_eq!(flow["number"], 1, "the first packet, as Wireshark counts");
    assert_eq!(flow["server"]["port"], SERVER.1);
    assert_eq!(flow["closing"], "finished");
    let upload = &flow["upload"];
    assert_eq!(upload["data"]["unique_bytes"], 20 * MSS);
    assert_eq!(upload["data"]["retransmitted_bytes"], MSS);
    assert_eq!(upload["data"]["fast_retransmissions"], 1);
    assert_eq!(upload["acks"]["duplicates"], 3);
    assert_eq!(flow["download"]["data"]["payload_bytes"], 0);
}

#[test]
fn pipes_packed_files_and_rotated_parts_say_the_same() {
    let desk = Desk::new();
    let trace = crowd();
    let bytes = trace.pcap();
    let flows = |args: &[&str]| result(args)["flows"].clone();
    let wanted = flows(&[&desk.put("whole.pcap", &bytes)]);

    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&bytes).unwrap();
    let packed = desk.put("whole.pcap.gz", &packed.finish().unwrap());
    assert!(flows(&[&packed]) == wanted, "gzip");

    let (third, end) = (trace.packets.len() / 3, trace.packets.len());
    let parts = [0..third, third..2 * third, 2 * third..end];
    let parts = parts.map(|part| trace.part(part).pcap());
    let name = |at: usize| desk.put(&format!("part{at}.pcap"), &parts[at]);
    assert!(
        flows(&[&name(2), &name(0), &name(1)]) == wanted,
        "rotated, in any order"
    );

    assert!(piped(&bytes)["flows"] == wanted, "standard input");
    let pcapng = flows(&[&desk.put("whole.pcapng", &trace.pcapng("eth0"))]);
    assert!(pcapng == wanted, "pcapng");
}

fn piped(bytes: &[u8]) -> Value {
    let mut child = Command::new(longhaul_testbed::longhaul())
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
fn captures_that_overlap_are_of_two_places() {
    let desk = Desk::new();
    let trace = Trace::many(3, 20);
    let near = desk.put("near.pcapng", &trace.pcapng("near0"));
    let far = desk.put("far.pcapng", &trace.later(10_000_000).pcapng("far0"));
    let analysis = result(&[&near, &far]);
    let places: Vec<_> = analysis["vantages"].as_array().unwrap().iter().collect();
    assert_eq!(places.len(), 2);
    assert_eq!(
        (&places[0]["name"], &places[1]["name"]),
        (&"near0".into(), &"far0".into())
    );
    assert_eq!(places[0]["packets"], trace.packets.len());
    let flows = analysis["flows"].as_array().unwrap();
    assert_eq!(flows.len(), 6);
    let seen_at = |place: u64| flows.iter().filter(|flow| flow["vantage"] == place).count();
    assert_eq!((seen_at(0), seen_at(1)), (3, 3));
    let pairs = analysis["both_ends"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    let way = &pairs[0]["from_client"];
    assert!(way["matched"].as_u64() >= Some(20), "{way}");
    assert_eq!(
        (&way["lost"]["segments"], &way["reordered"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn short_captures_of_the_same_time_are_of_two_places_though_nothing_names_them() {
    let desk = Desk::new();
    let trace = Trace::many(2, 20);
    let near = desk.put("near.pcap", &trace.pcap());
    let far = desk.put("far.pcap", &trace.later(10_000_000).pcap());
    let analysis = result(&[&near, &far]);
    assert_eq!(analysis["vantages"].as_array().unwrap().len(), 2);
    assert_eq!(analysis["flows"].as_array().unwrap().len(), 4);
}

#[test]
fn flows_beyond_the_largest_are_summed_and_listed() {
    let desk = Desk::new();
    let file = desk.put("crowd.pcap", &Trace::many(1200, 3).pcap());
    let out = desk.path("out");
    let analysis = result(&[&file, "-o", out.to_str().unwrap(), "--memory", "16MB"]);
    let told = analysis["flows"].as_array().unwrap().len();
    assert_eq!(told, 1000);
    assert_eq!(analysis["others"]["flows"], 200);
    let listed = fs::read_to_string(out.join("flows.jsonl")).unwrap();
    assert_eq!(listed.lines().count(), 200);
}

#[test]
fn a_person_reads_a_short_table() {
    let desk = Desk::new();
    let file = desk.put("crowd.pcap", &Trace::many(30, 20).pcap());
    let out = desk.path("out");
    let output = analyze(&[&file, "-o", out.to_str().unwrap(), "--flows", "3"]);
    let said = words(&output.stdout);
    assert!(said.contains("30 flows"), "{said}");
    assert!(
        said.contains("10.1.0.16:40016 → 10.9.0.1:5201"),
        "the largest: {said}"
    );
    assert!(said.contains("and 27 smaller flows"), "{said}");
    assert!(said.contains("36 KB"), "{said}");
}

#[test]
fn an_empty_capture_says_so() {
    let desk = Desk::new();
    let file = desk.put("empty.pcap", &pcap_header());
    let out = desk.path("out");
    let output = analyze(&[&file, "-o", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", words(&output.stderr));
    let said = words(&output.stdout);
    assert!(said.contains("empty.pcap: an empty capture"), "{said}");
}

#[test]
fn what_is_no_capture_is_named_and_nothing_is_touched() {
    let desk = Desk::new();
    let good = desk.put("good.pcap", &Trace::many(1, 5).pcap());
    let text = desk.put("notes.txt", b"not a capture at all, just words");
    let none = desk.put("none.pcap", b"");
    let out = desk.path("out");
    let out = out.to_str().unwrap();
    refused(
        &[&good, &text, "-o", out],
        &["notes.txt", "neither pcap nor pcapng"],
    );
    refused(&[&none, "-o", out], &["none.pcap", "empty"]);
    refused(&["/nowhere/a.pcap", "-o", out], &["/nowhere/a.pcap"]);
    refused(
        &[desk.0.path().to_str().unwrap(), "-o", out],
        &["is a directory", "*.pcap"],
    );
    let zstd = desk.put("a.pcap.zst", &[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0]);
    refused(&[&zstd, "-o", out], &["a.pcap.zst", "zstd -d"]);
    assert!(!Path::new(out).exists());
}

#[test]
fn bad_flags_are_named() {
    let desk = Desk::new();
    let file = desk.put("good.pcap", &Trace::many(1, 5).pcap());
    refused(
        &[&file, "--json", "--bin", "1ns"],
        &["--bin is 1ns", "10 us"],
    );
    refused(&[&file, "--json", "--bin", "2s"], &["--bin is 2s"]);
    refused(
        &[&file, "--json", "--memory", "1MB"],
        &["--memory is 1MB", "16 MB"],
    );
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let desk = Desk::new();
    let file = desk.put("good.pcap", &Trace::many(1, 5).pcap());
    let out = desk.path("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("thesis.tex"), "years").unwrap();
    refused(&[&file, "-o", out.to_str().unwrap()], &["thesis.tex", "-o"]);
    assert_eq!(names(&out), ["thesis.tex"]);
}

#[test]
fn a_second_analysis_replaces_the_first() {
    let desk = Desk::new();
    let file = desk.put("good.pcap", &Trace::many(1, 5).pcap());
    let out = desk.path("out");
    let out = out.to_str().unwrap();
    result(&[&file, "-o", out, "--csv"]);
    assert!(names(Path::new(out)).contains(&"series-1s.csv".to_owned()));
    result(&[&file, "-o", out]);
    assert!(!names(Path::new(out)).contains(&"series-1s.csv".to_owned()));
}

#[test]
fn what_is_sound_of_a_damaged_file_is_analysed() {
    let desk = Desk::new();
    let trace = Trace::many(2, 20);
    let whole = trace.pcap();
    let cut = desk.put("cut.pcap", &whole[..whole.len() - 7]);
    let output = analyze(&[&cut, "-o", desk.path("cut").to_str().unwrap()]);
    let said = words(&output.stdout);
    assert!(output.status.success(), "{}", words(&output.stderr));
    assert!(
        said.contains("cut.pcap: at byte") && said.contains("2 flows"),
        "{said}"
    );
    let analysis = result(&[&cut]);
    assert_eq!(analysis["files"][0]["packets"], trace.packets.len() - 1);

    let mut hole = whole.clone();
    let middle = hole.len() / 2;
    hole[middle..middle + 300].fill(0xff);
    let analysis = result(&[&desk.put("hole.pcap", &hole)]);
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

#[test]
fn a_file_of_which_nothing_is_sound_is_refused() {
    let desk = Desk::new();
    let mut ruin = pcap_header();
    ruin.extend([0xff; 5000]);
    let file = desk.put("ruin.pcap", &ruin);
    refused(&[&file, "--json"], &["ruin.pcap", "nothing in it is sound"]);
}

#[test]
fn damaged_packing_is_said() {
    let desk = Desk::new();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&crowd().pcap()).unwrap();
    let packed = packed.finish().unwrap();
    let file = desk.put("torn.pcap.gz", &packed[..packed.len() / 2]);
    let analysis = result(&[&file]);
    let damages = analysis["files"][0]["damages"].to_string();
    assert!(damages.contains("cannot be read any further"), "{damages}");
    assert!(!analysis["flows"].as_array().unwrap().is_empty());
}

fn sample(name: &str) -> String {
    format!("{}/tests/captures/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn upload_verdicts(result: &Value) -> Vec<String> {
    let flows = result["flows"].as_array().unwrap().iter();
    let verdict = |flow: &Value| flow["upload"]["verdict"].as_str().unwrap().to_owned();
    flows.map(verdict).collect()
}

/// The receiver withholds ACKs until its application reads. That makes round trips longer without any
/// queue on the path.
#[test]
fn slow_reader_is_limited_by_receive_window() {
    let files = ["slow-reader-sender.pcap", "slow-reader-receiver.pcap"].map(sample);
    for file in &files {
        let verdicts = upload_verdicts(&result(&[file]));
        let [verdict] = verdicts.as_slice() else {
            panic!("{verdicts:?}")
        };
        assert!(verdict.contains("by the receiver's window"), "{verdict}");
        assert!(
            verdict.contains("application read more slowly"),
            "{verdict}"
        );
        assert!(!verdict.contains("queue stood"), "{verdict}");
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
            verdicts[0].starts_with("Seen at both ends: limited most of the time")
                && verdicts[0].contains("by the receiver's window"),
            "{}",
            verdicts[0]
        );
    }
}

/// Both captures were made on one machine.
#[test]
fn captures_by_one_clock_have_no_skew() {
    for (sender, receiver) in [
        ("slow-reader-sender.pcap", "slow-reader-receiver.pcap"),
        ("losses-sender.pcap", "losses-receiver.pcap"),
    ] {
        let found = result(&[&sample(sender), &sample(receiver)]);
        let pairs = found["both_ends"].as_array().unwrap();
        assert!(!pairs.is_empty());
        for pair in pairs {
            let skew = pair["skew_ppm"].as_f64().unwrap();
            assert!(skew.abs() < 1e-6, "{sender}: {skew} ppm");
        }
    }
}
