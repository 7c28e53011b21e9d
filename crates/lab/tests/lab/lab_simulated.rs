// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul lab run` under simulated time: no root, identical figures each time, and refusals of
//! what cannot be simulated.

use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const HEAD: &str = "title = 'test'\nquestion = 'how fast?'\nrepetitions = 1\n";

/// Two senders behind links of their own, with one bottleneck.
const DUMBBELL: &str = r#"
[matrix]
cc = ["reno", "cubic", "lh_bic", "lh_bic:ack_shift=3"]

[[links]]
name = "near"
endpoints = ["a", "router"]
delay = "1ms"

[[links]]
name = "far"
endpoints = ["b", "router"]
delay = "20ms"

[[links]]
name = "bottleneck"
endpoints = ["router", "sink"]
rate = "200mbit"
delay = "5ms"
queue = "1bdp"

[[flows]]
name = "short"
program = "iperf3"
from = "a"
to = "sink"
duration = "20s"
cc = "${cc}"

[[flows]]
name = "long"
program = "iperf3"
from = "b"
to = "sink"
duration = "20s"
streams = 2
direction = "upload"
cc = "${cc}"
"#;

/// A relay between a lossy leg and a long one.
const RELAYED: &str = r#"
simulated = true
[matrix]
relay = [false, true]

[[links]]
name = "lan"
endpoints = ["client", "relay"]
rate = "100mbit"
delay = "5ms"
loss = 0.005

[[links]]
name = "wan"
endpoints = ["relay", "server"]
rate = "1gbit"
delay = "50ms"

[relays.relay]
enabled = "${relay}"
transparent = "0.0.0.0:3129"
intercept = "10.9.0.0/16:5201"
allow_from = "10.9.0.0/16"

[[flows]]
name = "get"
program = "iperf3"
from = "server"
to = "client"
size = "20MB"
"#;

fn lab(scenario: &str, flags: &[&str], out: &Path) -> Output {
    let file = out.join("test.toml");
    fs::write(&file, [HEAD, scenario].concat()).unwrap();
    Command::new(longhaul_testprograms::longhaul())
        .args(["lab", "run"])
        .arg(&file)
        .args(flags)
        .args(["--json", "--out"])
        .arg(out.join("out"))
        .output()
        .unwrap()
}

/// Runs the scenario, and returns its result and directory.
fn run(scenario: &str, flags: &[&str]) -> (Value, tempfile::TempDir) {
    let out = tempfile::tempdir().unwrap();
    let output = lab(scenario, flags, out.path());
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    (
        serde_json::from_slice(&output.stdout).expect(&messages),
        out,
    )
}

fn refusal(scenario: &str, flags: &[&str]) -> String {
    let out = tempfile::tempdir().unwrap();
    let output = lab(scenario, flags, out.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(!out.path().join("out").exists());
    String::from_utf8(output.stderr).unwrap()
}

/// Formats cells with their metrics: rates in Mbit/s to three places, the rest as it is.
fn figures(result: &Value) -> Vec<String> {
    let cells = result["cells"].as_array().unwrap().iter();
    cells
        .map(|cell| {
            assert_eq!(cell["simulated"], true);
            let run = cell["runs"][0].as_object().unwrap();
            let metrics = run.iter().filter(|(_, value)| value.is_number());
            let text: Vec<String> = metrics
                .map(|(name, value)| match name.strip_suffix("_bps") {
                    Some(name) => format!("{name} {:.3} Mbit/s", value.as_f64().unwrap() / 1e6),
                    None => format!("{name} {value:.4}"),
                })
                .collect();
            format!("{} {}", cell["parameters"], text.join(", "))
        })
        .collect()
}

#[test]
fn flows_share_a_bottleneck() {
    let (result, _) = run(DUMBBELL, &["--simulate"]);
    insta::assert_snapshot!(figures(&result).join("\n"));
    let (repeated, _) = run(DUMBBELL, &["--simulate"]);
    assert_eq!(figures(&repeated), figures(&result));
    let goodput = |cell: usize| result["cells"][cell]["runs"][0]["goodput_bps"].as_f64();
    for cell in 0..4 {
        let share = goodput(cell).unwrap() / 200e6;
        assert!((0.8..=0.966).contains(&share), "{cell}: {share}");
    }
}

#[test]
fn relay_splits_the_path() {
    let (result, out) = run(RELAYED, &[]);
    insta::assert_snapshot!(figures(&result).join("\n"));
    let goodput = |cell: usize| {
        result["cells"][cell]["runs"][0]["goodput_bps"]
            .as_f64()
            .unwrap()
    };
    assert!(goodput(1) > 3.0 * goodput(0), "{:?}", figures(&result));
    let legs = |cell: usize| &result["cells"][cell]["runs"][0]["series"]["path_segments"];
    assert_eq!(legs(0).as_array().unwrap().len(), 1);
    let names: Vec<&Value> = legs(1)
        .as_array()
        .unwrap()
        .iter()
        .map(|leg| &leg["name"])
        .collect();
    assert_eq!(names, [&json!("server–relay"), &json!("relay–client")]);
    let mut raw = result["raw"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str);
    let file = raw.rfind(|file| file.ends_with("tcp_info.jsonl")).unwrap();
    let samples = fs::read_to_string(out.path().join("out").join(file)).unwrap();
    let last: Value = serde_json::from_str(samples.lines().next_back().unwrap()).unwrap();
    assert_eq!(last["host"], "client");
    assert!(last["bytes_received"].as_u64().unwrap() >= 20_000_000);
}

#[test]
fn simulates_100_gbit_s_on_any_machine() {
    let wide = r#"
[[include]]
values = {}
[sysctl]
"net.ipv4.tcp_rmem" = "4096 131072 500000000"
"net.ipv4.tcp_wmem" = "4096 131072 500000000"
[[links]]
name = "wide"
endpoints = ["a", "b"]
rate = "100gbit"
delay = "2ms"
[[flows]]
name = "bulk"
program = "iperf3"
from = "a"
to = "b"
duration = "500ms"
omit = "500ms"
cc = "lh_scalable+pace"
"#;
    let (result, _) = run(wide, &["--simulate"]);
    let goodput = result["cells"][0]["runs"][0]["goodput_bps"]
        .as_f64()
        .unwrap();
    assert!((60e9..97e9).contains(&goodput), "{goodput}");
    let note = result["about"]["notes"].as_array().unwrap().last().unwrap();
    assert!(note.as_str().unwrap().contains("imulated"), "{note}");
}

/// Path whose delay increases, and would decrease an hour later.
const SWITCHED: &str = r#"
simulated = true
[[links]]
name = "path"
endpoints = ["a", "b"]
rate = "20mbit"
delay = "10ms"
at = ["2s: delay 30ms", "1h: delay 10ms"]

[[flows]]
name = "bulk"
program = "iperf3"
from = "a"
to = "b"
duration = "3s"
omit = "1s"

[[figure]]
name = "over-time"
kind = "line"
title = "Over time"
time_series = "srtt_us"
"#;

#[test]
fn link_changes_are_in_the_result_and_on_the_page() {
    let (result, out) = run(SWITCHED, &[]);
    let series = &result["cells"][0]["runs"][0]["series"];
    assert_eq!(
        series["events"][0],
        json!({"at_s": 2.0, "label": "delay 10 → 30 ms"})
    );
    assert_eq!(series["begin_s"], 1.0);
    let page = fs::read_to_string(out.path().join("out/report.html")).unwrap();
    assert!(page.contains("At 2 s: delay 10 → 30 ms."));
}

/// Path with losses on the edge link after the bottleneck, a relay at each end of the bottleneck,
/// and one of them next to the server.
const LOSSY_EDGE: &str = r#"
simulated = true
[matrix]
relays = [false, true]
[[links]]
name = "edge"
endpoints = ["client", "r1"]
delay = "1ms"
rate = "10gbit"
loss = 0.0001
[[links]]
name = "line"
endpoints = ["r1", "r2"]
delay = "49ms"
rate = "10gbit"
[[links]]
name = "site"
kind = "veth"
endpoints = ["r2", "server"]
[sysctl]
"net.ipv4.tcp_rmem" = "4096 131072 500000000"
"net.ipv4.tcp_wmem" = "4096 131072 500000000"
[relays.r1]
enabled = "${relays}"
transparent = "0.0.0.0:3129"
allow_from = "10.9.0.0/16"
intercept = "10.9.0.0/16:5201"
[relays.r2]
enabled = "${relays}"
transparent = "0.0.0.0:3129"
allow_from = "10.9.0.0/16"
intercept = "10.9.0.0/16:5201"
cc_downstream = "cubic"
[[flows]]
name = "get"
program = "iperf3"
from = "server"
to = "client"
duration = "10s"
omit = "5s"
cc = "reno"
"#;

#[test]
fn adds_losses_of_other_links_and_skips_veth_legs() {
    let (result, out) = run(LOSSY_EDGE, &[]);
    insta::assert_snapshot!(figures(&result).join("\n"));
    let legs = &result["cells"][1]["runs"][0]["series"]["path_segments"];
    let legs: Vec<&Value> = legs
        .as_array()
        .unwrap()
        .iter()
        .map(|leg| &leg["name"])
        .collect();
    assert_eq!(legs, ["r2–r1", "r1–client"]);
    let raw = result["raw"].as_array().unwrap().iter();
    let file = raw
        .filter_map(Value::as_str)
        .rfind(|file| file.ends_with("tcp_info.jsonl"))
        .unwrap();
    let samples = fs::read_to_string(out.path().join("out").join(file)).unwrap();
    assert!(samples.contains("\"host\":\"r2\",\"local\":\"10.9.1.2:5201\""));
    assert!(
        samples
            .lines()
            .any(|line| line.contains("\"congestion\":\"cubic\""))
    );
}

/// Runs the built-in scenario `simulate` with these parameters.
fn simulate(parameters: &[&str]) -> Output {
    let out = tempfile::tempdir().unwrap();
    Command::new(longhaul_testprograms::longhaul())
        .args(["lab", "run", "simulate", "--json", "--out"])
        .arg(out.path().join("out"))
        .args(parameters.iter().flat_map(|parameter| ["--set", parameter]))
        .output()
        .unwrap()
}

/// Returns a metric of such a run.
fn metric_of(name: &str, parameters: &[&str]) -> f64 {
    let output = simulate(&[parameters, &["duration=10s"]].concat());
    let messages = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).expect(&messages);
    result["cells"][0]["runs"][0][name].as_f64().unwrap()
}

#[test]
fn parameters_of_simulate_reach_flows_and_path() {
    let goodput = |parameters: &[&str]| metric_of("goodput_bps", parameters);
    let lossy = |cc: &str| goodput(&["loss=0.005%", cc]);
    assert!(lossy("cc=lh_scalable") > 2.0 * lossy("cc=reno"));
    assert!(lossy("cc=bic") != lossy("cc=bic:ack_shift=1"));
    assert!(goodput(&["model={ initial_window = 1000 }"]) > goodput(&[]));
    assert!(metric_of("loss_drops", &["forward=[\"loss=at:9,99\"]"]) == 2.0);
    let longer = ["at=[\"1s: delay 200ms\"]"];
    assert!(goodput(&longer) < goodput(&[]));
    let (backoffs, second) = ("backoffs", "second=true");
    assert!(metric_of(backoffs, &[second]) > metric_of(backoffs, &[]));
    assert!(metric_of("second_goodput_bps", &[second, "second_start=1s"]) > 0.0);
}

#[test]
fn refuses_a_model_beyond_its_limits() {
    for (model, words) in [
        ("ack_ratio = 0", "ack_ratio is 0, but must be 1 to 1024"),
        ("initial_window = 1001", "must be 1 to 1000"),
        ("gro = \"often\"", "\"often\" is not a number with a unit"),
        ("mss = 9", "unknown field `mss`"),
    ] {
        let output = simulate(&[&format!("model={{ {model} }}")]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{model}: {message}");
        assert!(message.contains(words), "{model}: {message}");
    }
}

#[test]
fn gap_sets_the_rate() {
    let scenario = "simulated = true\n[[include]]\nvalues = {}\n\
         [[links]]\nname = 'l'\nendpoints = ['a', 'b']\nrate = '100mbit'\ndelay = '50ms'\n\
         [[flows]]\nname = 'f'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\nduration = '10s'\n\
         omit = '3s'\ninter_packet_gap = '240us'\ncc = 'reno'\n";
    let run = run(scenario, &[]).0["cells"][0]["runs"][0].clone();
    let goodput = run["goodput_bps"].as_f64().unwrap();
    let gap = 1448.0 * 8.0 / 240e-6;
    assert!((goodput / gap - 1.0).abs() < 0.01, "{goodput}");
}

#[test]
fn refuses_what_cannot_be_simulated() {
    let refused = |from: &str, to: &str| {
        assert!(DUMBBELL.contains(from), "{from}");
        refusal(&DUMBBELL.replacen(from, to, 1), &["--simulate"])
    };
    assert!(refused("cc = \"${cc}\"", "cc = 'bbr'").contains("congestion control \"bbr\""));
    assert!(
        refused("delay = \"20ms\"", "delay = '20ms'\nloss = 0.1").contains("link \"far\" has loss")
    );
    assert!(
        refused("delay = \"20ms\"", "delay = '20ms'\nrate = '10mbit'").contains("queue at both")
    );
    assert!(refused("queue = \"1bdp\"", "capture = true").contains("has a capture"));
    let jitter = refused("delay = \"20ms\"", "delay = '20ms'\njitter = '1ms'");
    assert!(jitter.contains("link \"far\" has jitter"), "{jitter}");
    assert!(
        refused(
            "rate = \"200mbit\"\ndelay = \"5ms\"\nqueue = \"1bdp\"",
            "delay = '5ms'"
        )
        .contains("no emulated link with a rate")
    );
    let opposite = refused("from = \"a\"\nto = \"sink\"", "from = 'sink'\nto = 'a'");
    assert!(opposite.contains("in the same direction"), "{opposite}");
    let curl = refused(
        "program = \"iperf3\"\nfrom = \"a\"\nto = \"sink\"\nduration = \"20s\"",
        "program = 'curl'\nfrom = 'a'\nto = 'sink'\nsize = '1MB'",
    );
    assert!(
        curl.contains("flow \"short\" has program \"curl\""),
        "{curl}"
    );
    assert!(curl.contains("cell"), "{curl}");
    let profile = "cc_downstream = \"cubic\"\nconfig.profile.wan.congestion_control = 'reno'";
    let profile = refusal(
        &LOSSY_EDGE.replacen("cc_downstream = \"cubic\"", profile, 1),
        &[],
    );
    assert!(profile.contains("has profiles of its own"), "{profile}");
}

/// Two congestion controls between the same hosts, without a figure in the scenario.
#[test]
fn page_draws_both_flows_and_says_simulated() {
    let flow = |name: &str, control: &str| {
        format!(
            "[[flows]]\nname = '{name}'\nprogram = 'iperf3'\nfrom = 'a'\nto = 'b'\nduration = '3s'\ncc = '{control}'\n"
        )
    };
    let both = [flow("first", "reno"), flow("second", "lh_bic")].concat();
    let scenario = format!(
        "simulated = true\n[[include]]\nvalues = {{}}\n\
         [[links]]\nname = 'path'\nendpoints = ['a', 'b']\nrate = '20mbit'\ndelay = '10ms'\n{both}"
    );
    let (result, out) = run(&scenario, &[]);
    let series = &result["cells"][0]["runs"][0]["series"];
    let names = |key: &str, name: fn(&Value) -> &Value| -> Vec<String> {
        let all = series[key].as_array().unwrap().iter();
        all.map(|one| name(one).as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names("path_segments", |leg| &leg["name"]),
        ["first (reno) a–b", "second (lh_bic) a–b"]
    );
    assert_eq!(
        names("time_series", |course| &course["flow"]),
        ["first", "second"]
    );
    let page = fs::read_to_string(out.path().join("out/report.html")).unwrap();
    let head = page.split("<main").next().unwrap();
    assert!(head.contains("Simulated, not run on sockets: all cells"));
    assert!(page.contains("Goodput of each flow"));
    // Comments in styles and scripts may have these words; the text may not.
    let body = page.split("<body").nth(1).unwrap();
    let body = body.split("<script").next().unwrap();
    for words in ["the paper", "paper’s", "The paper"] {
        assert!(!body.contains(words), "{words}");
    }
}
