// SPDX-License-Identifier: MIT OR Apache-2.0
//! Send buffers of a program under `longhaul run`, over an emulated long path, on hosts with default settings.

use crate::run_program::{command, may_attach_bpf};
use longhaul_linux::process::inside;
use longhaul_testnet::link_process::{Testbed, may_use_namespaces, traffic::serve_iperf3};
use serde_json::Value;

/// Bytes of a transfer: several times what the path holds (2.5 MB).
const BYTES: &str = "20M";

/// Sends with `longhaul run FLAGS -- iperf3`, and returns run's record.
fn send(bed: &Testbed, flags: &[&str]) -> Value {
    let _server = serve_iperf3(&bed.right);
    let record = tempfile::NamedTempFile::new().unwrap();
    let json = ["--json", record.path().to_str().unwrap()];
    let iperf3 = ["iperf3", "--client", "10.86.0.2", "--bytes", BYTES];
    let mut sender = command(&[flags, &json].concat(), &iperf3);
    let sent = inside(&mut sender, &bed.left).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    serde_json::from_reader(record).unwrap()
}

#[test]
fn grow_beyond_the_bound_of_the_kernel_unless_told_otherwise() {
    if !may_attach_bpf() || !may_use_namespaces() {
        return;
    }
    let path = ["--delay", "50ms", "--rate", "200mbit", "--queue", "4bdp"];
    let bed = Testbed::start("run-buffers", ["10.86.0.1/30", "10.86.0.2/30"], &path);
    // CUBIC's HyStart may leave slow start early on a busy machine; Reno's window doubles until it is limited.
    let record = send(&bed, &["--cc", "reno"]);
    let largest = record["largest_send_buffer_bytes"].as_u64();
    assert!(largest.is_some_and(|bytes| bytes > 4 << 20), "{record}");
    for size in ["kernel", "1MiB"] {
        let record = send(&bed, &["--send-buffer", size]);
        // The client closes its connection as soon as the last bytes are in the send buffer, and the
        // server then reads no further.
        assert!(
            record["bytes_acked"].as_u64() > Some(15_000_000),
            "{record}"
        );
        assert!(
            record.get("largest_send_buffer_bytes").is_none(),
            "{record}"
        );
    }
}
