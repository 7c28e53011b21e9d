// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul run --ack-ratio` and `--ack-rate` on real sockets. A program in one network namespace fetches data from a
//! server in another, at 100 Mbit/s, without super-packets.

use longhaul_testnet::namespace::{Namespace, run, run_ip};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Stdio},
    thread,
    time::Instant,
};

/// Bytes of a response: 70 full segments.
const RESPONSE_LEN: usize = 100_000;

/// Two network namespaces with a veth pair between.
struct NamespacePair {
    server: Namespace,
    client: Namespace,
}

impl NamespacePair {
    fn new(name: &str) -> Self {
        let [server, client] = ["s", "c"].map(|end| Namespace::new(&format!("ack-{name}-{end}")));
        server.connect("wan0", &client, "wan0");
        run_ip(&server, "link set wan0 gso_max_segs 1");
        server.bring_up("wan0", &["10.5.0.1/24", "fd05::1/64"]);
        client.bring_up("wan0", &["10.5.0.2/24", "fd05::2/64"]);
        run(
            &server,
            "tc qdisc add dev wan0 root tbf rate 100mbit burst 6000 limit 600000",
        );
        Self { server, client }
    }

    /// Serves connections one after the other: 100 KB for each byte received.
    fn serve(&self, address: &'static str) {
        let listen = || TcpListener::bind((address, 7000));
        let listener = self.server.run(listen).unwrap();
        thread::spawn(move || listener.incoming().flatten().for_each(respond));
    }

    /// Starts a program under `longhaul run` that sends `requests` over one connection.
    fn fetch(&self, flags: &[&str], address: &str, requests: usize) -> Child {
        self.fetch_with_command("true", flags, address, requests)
    }

    /// Starts such a program. It runs `command_before` before each request.
    fn fetch_with_command(
        &self,
        command_before: &str,
        flags: &[&str],
        address: &str,
        requests: usize,
    ) -> Child {
        let script = format!(
            "exec 3<>/dev/tcp/{address}/7000; for i in $(seq {requests}); do {command_before}; \
             printf r >&3; head -c {RESPONSE_LEN} <&3 | wc -c; done"
        );
        let mut command = self.client.command(longhaul_testprograms::longhaul());
        command.arg("run").args(flags);
        command.args(["--json", "-", "--", "bash", "-c", &script]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Returns the number of packets that left the client.
    fn transmitted(&self) -> u64 {
        self.client.traffic("wan0").sent_packets
    }

    /// Returns the number of loss probes and timeouts at the server. Missing ACKs cause them.
    fn stalls(&self) -> u64 {
        let counters = ["TCPLossProbes", "TCPTimeouts"];
        let count = |counter| self.server.counter("TcpExt", counter);
        counters.map(count).iter().sum()
    }
}

fn respond(mut stream: TcpStream) {
    let bytes = vec![b'x'; RESPONSE_LEN];
    stream.set_nodelay(true).unwrap();
    while stream.read_exact(&mut [0]).is_ok() && stream.write_all(&bytes).is_ok() {}
}

/// Returns the record of a run, after checking that all responses were complete.
fn record(child: Child, requests: usize) -> Value {
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lengths = String::from_utf8_lossy(&output.stdout);
    let whole = lengths.lines().filter(|line| *line == "100000").count();
    assert_eq!(whole, requests, "{lengths}{errors}");
    let line = errors.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.expect("a record")).unwrap()
}

fn count(record: &Value, counter: &str) -> u64 {
    record["acks"][counter].as_u64().unwrap()
}

/// Returns the share of the generated ACKs that were sent, at once or late.
fn sent_share(record: &Value) -> f64 {
    let (generated, withheld, delayed) = (
        count(record, "generated"),
        count(record, "withheld"),
        count(record, "delayed"),
    );
    assert!(
        generated > 0 && delayed <= withheld && withheld <= generated,
        "{record}"
    );
    (generated - withheld + delayed) as f64 / generated as f64
}

const REQUESTS: usize = 60;

#[test]
fn ack_ratio_reduces_acks_without_stalls() {
    for (address, name) in [("10.5.0.1", "four"), ("fd05::1", "six")] {
        let pair = NamespacePair::new(name);
        pair.serve(address);
        let unthinned = record(
            pair.fetch(&["--ack-ratio", "1"], address, REQUESTS),
            REQUESTS,
        );
        assert_eq!(count(&unthinned, "withheld"), 0, "{unthinned}");
        let before = pair.stalls();
        let thinned = record(
            pair.fetch(&["--ack-ratio", "8"], address, REQUESTS),
            REQUESTS,
        );
        // A ratio of 8 withholds three of four ACKs, because a delayed ACK covers two segments already. How many of the
        // withheld ACKs are sent late depends on the load of the machine.
        let [generated, withheld] = ["generated", "withheld"].map(|what| count(&thinned, what));
        assert!(withheld * 3 > generated, "{thinned}");
        // If the last ACK of a response were never sent, each response would stall.
        let stalls = pair.stalls() - before;
        assert!(
            stalls < REQUESTS as u64 / 3,
            "{stalls} of {REQUESTS} stalled"
        );
        assert!(count(&thinned, "delayed") > 0, "{thinned}");
    }
}

#[test]
fn acknowledges_aggregates_beyond_the_ratio_at_once() {
    let pair = NamespacePair::new("gso");
    // Data comes in super-packets of up to 64 KB. Each is more than two segments.
    run_ip(&pair.server, "link set wan0 gso_max_segs 65535");
    run(&pair.server, "tc qdisc delete dev wan0 root");
    pair.serve("10.5.0.1");
    let record = record(
        pair.fetch(&["--ack-ratio", "2"], "10.5.0.1", REQUESTS),
        REQUESTS,
    );
    assert!(sent_share(&record) > 0.8, "{record}");
}

#[test]
fn ack_thinning_ends_when_the_run_is_killed() {
    let pair = NamespacePair::new("kill");
    // The client sends an ACK for each segment.
    run_ip(
        &pair.client,
        "route change 10.5.0.0/24 dev wan0 src 10.5.0.2 quickack 1",
    );
    pair.serve("10.5.0.1");
    let mut child =
        pair.fetch_with_command("read go", &["--ack-ratio", "64"], "10.5.0.1", 2 * REQUESTS);
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut packets_per_response = || {
        let before = pair.transmitted();
        for _ in 0..REQUESTS {
            input.write_all(b"go\n")?;
            output.read_exact(&mut [0; 7])?;
        }
        std::io::Result::Ok((pair.transmitted() - before) / REQUESTS as u64)
    };
    // The client sends the request and two of the 70 ACKs, one or both of them late.
    let thinned = packets_per_response().unwrap();
    assert!(thinned < 20, "{thinned} packets per response");
    child.kill().unwrap();
    child.wait().unwrap();
    // The program continues. From now on, each of its ACKs is sent.
    let unthinned = packets_per_response().unwrap();
    assert!(unthinned > 40, "{unthinned} packets per response");
}

#[test]
fn removes_ack_pacing_class_after_the_run() {
    let pair = NamespacePair::new("pace");
    pair.serve("10.5.0.1");
    let tc = |what: &str| run(&pair.client, &format!("tc -s {what} show dev wan0"));
    let flags = ["--ack-rate", "500", "--ack-interface", "wan0"];
    let start = |requests| pair.fetch_with_command("read go", &flags, "10.5.0.1", requests);
    let request = |child: &mut Child, count: usize| {
        for _ in 0..count {
            child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
            child
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut [0; 7])
                .unwrap();
        }
    };
    let mut child = start(21);
    let began = Instant::now();
    request(&mut child, 20);
    let seconds = began.elapsed().as_secs_f64();
    let class_packets = sent_packets(&tc("class"));
    assert!(class_packets > 20.0, "{}", tc("class"));
    // The class sends 500 packets per second. It has existed for at most 0.2 s longer than the requests took. The
    // margin is 10 %.
    assert!(
        class_packets < 500.0 * 1.1 * (seconds + 0.2),
        "{class_packets} in {seconds} s"
    );
    assert!(
        sent_packets(&tc("qdisc")) >= class_packets + 20.0,
        "requests bypass the class"
    );
    request(&mut child, 1);
    record(child, 0);
    assert!(!tc("qdisc").contains("htb"), "{}", tc("qdisc"));

    let mut killed = start(20);
    request(&mut killed, 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(tc("qdisc").contains("htb acc:"));
    // The next run replaces the class that the killed run left.
    let mut next = start(1);
    request(&mut next, 1);
    record(next, 0);
    assert!(!tc("qdisc").contains("htb"), "{}", tc("qdisc"));
}

/// Returns the number of packets in the first `Sent BYTES bytes N pkt` of tc's output.
fn sent_packets(shown: &str) -> f64 {
    let words: Vec<_> = shown.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "Sent").expect(shown);
    words[at + 3].parse().unwrap()
}

#[test]
fn keeps_a_configured_queueing_discipline() {
    let pair = NamespacePair::new("own");
    run(&pair.client, "tc qdisc add dev wan0 root handle 7: pfifo");
    let refused = |interface: &str| {
        let flags = ["--ack-rate", "500", "--ack-interface", interface];
        let output = pair
            .fetch(&flags, "10.5.0.1", 1)
            .wait_with_output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), message)
    };
    let (code, message) = refused("wan0");
    assert_eq!(code, 3, "{message}");
    assert!(
        message.contains("tc qdisc delete dev wan0 root"),
        "{message}"
    );
    let (code, message) = refused("wan7");
    assert_eq!(code, 2, "{message}");
    let shown = run(&pair.client, "tc qdisc show dev wan0");
    assert!(shown.contains("pfifo 7:"), "{shown}");
}
