// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filter expressions of pcap-filter(7). tcpdump compiles them, so they mean what they mean there.

use longhaul_packet::packet_filter::{self, Instruction};
use std::{
    io::ErrorKind,
    process::{Command, Output},
};

/// Compiles `expression` for packets of a link type, by tcpdump's name of it. The program captures at most `snaplen`
/// bytes of a packet.
///
/// # Errors
/// tcpdump is not installed, or refuses the expression: the reason, with the flag.
pub(super) fn compile(
    expression: &str,
    link_type: &str,
    snaplen: u32,
) -> Result<Vec<Instruction>, String> {
    let refuse = |reason: &str| format!("--filter {expression:?}: {reason}");
    if names_vlan(expression) {
        return Err(refuse(
            "filters see packets without their VLAN tags, which the kernel removes; capture on the \
             VLAN's interface",
        ));
    }
    let output = Command::new("tcpdump")
        .args(["-ddd", "-y", link_type, "--", expression])
        .output();
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(refuse(
            "tcpdump compiles filters, and is not installed: apt install tcpdump, or dnf install \
             tcpdump; or give the program to --filter-bpf",
        )),
        Err(error) => Err(refuse(&format!("tcpdump: {error}"))),
        Ok(output) if output.status.success() => {
            let listing = String::from_utf8_lossy(&output.stdout);
            packet_filter::parse_listing(&listing, snaplen).map_err(|e| refuse(&e.to_string()))
        }
        Ok(output) => Err(refuse(&last_message(&output))),
    }
}

/// Returns whether the expression tests VLAN tags.
fn names_vlan(expression: &str) -> bool {
    let mut words = expression.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| word == "vlan")
}

/// Returns the last line that a program wrote to standard error: its reason to fail.
fn last_message(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().last().unwrap_or("tcpdump failed").to_owned()
}
