// SPDX-License-Identifier: MIT OR Apache-2.0
//! Record of a run as JSON, and its summary as text.

use longhaul_congestion::{ack_thin, sockets::profile::Counts};
use longhaul_report::count::counted;
use longhaul_units::Bytes;
use serde::Serialize;
use std::io;

#[derive(Debug, Serialize)]
pub(super) struct Record {
    pub(super) program: String,
    pub(super) pid: u32,
    /// Exit code as in a shell: 128+N if signal N ended the program.
    pub(super) exit_code: u8,
    pub(super) seconds: f64,
    /// Congestion control, by the kernel's name.
    pub(super) congestion_control: Option<String>,
    /// Number of sockets that sent without GSO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sockets_without_gso: Option<usize>,
    /// Counts of acknowledgements without data: sent, withheld and late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) acks: Option<ack_thin::Counts>,
    /// Largest send buffer that longhaul set, in bytes as the kernel counts them.
    #[serde(
        rename = "largest_send_buffer_bytes",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) largest_send_buffer: Option<u64>,
    /// Why a send buffer was not enlarged.
    #[serde(skip)]
    pub(super) send_buffer_error: Option<io::Error>,
    #[serde(flatten)]
    pub(super) counts: Counts,
}

impl Record {
    fn connections(&self) -> u64 {
        self.counts.connected + self.counts.accepted
    }

    /// Returns the summary, one line.
    pub(super) fn summary(&self) -> String {
        let Counts {
            closed,
            bytes_acked,
            bytes_received,
            ..
        } = self.counts;
        let connections = self.connections();
        let cc = self.congestion_control.as_deref();
        let cc = cc.map_or(String::new(), |name| format!(" with {name}"));
        let open = match connections.saturating_sub(closed) {
            0 => String::new(),
            open => format!(", {open} not closed yet"),
        };
        let acks = self.acks.map_or(String::new(), |acks| {
            format!(", {} of {} ACKs sent", acks.sent(), acks.generated)
        });
        let buffer = self.largest_send_buffer.map_or(String::new(), |bytes| {
            format!(", send buffers of up to {}", Bytes::new(bytes))
        });
        format!(
            "{}: {}{cc}, {} sent, {} received, {} segments retransmitted{acks}{buffer}{open}",
            self.program,
            counted(connections, "connection"),
            Bytes::new(bytes_acked),
            Bytes::new(bytes_received),
            self.counts.retransmitted,
        )
    }

    /// Returns a line for each setting that the kernel refused.
    pub(super) fn refusals(&self) -> impl Iterator<Item = String> {
        let refused = self.counts.refused.iter().map(|refused| {
            let why = io::Error::from_raw_os_error(refused.errno as i32);
            let (setting, sockets) = (refused.setting, refused.sockets);
            format!("{setting}: the kernel refused it for {sockets} sockets: {why}")
        });
        let bound = |error| format!("send buffers stay within net.ipv4.tcp_wmem: {error}");
        refused.chain(self.send_buffer_error.as_ref().map(bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_congestion::sockets::profile::Refused;

    fn record() -> Record {
        Record {
            program: "curl".into(),
            pid: 7,
            exit_code: 0,
            seconds: 1.5,
            congestion_control: Some("lh_htcp".into()),
            sockets_without_gso: None,
            acks: None,
            largest_send_buffer: None,
            send_buffer_error: None,
            counts: Counts {
                connected: 2,
                closed: 1,
                bytes_acked: 1000,
                bytes_received: 8_000_000,
                retransmitted: 3,
                refused: vec![Refused {
                    setting: "mss",
                    sockets: 2,
                    errno: 22,
                }],
                ..Counts::default()
            },
        }
    }

    #[test]
    fn summary_is_one_line() {
        assert_eq!(
            record().summary(),
            "curl: 2 connections with lh_htcp, 1 KB sent, 8 MB received, 3 segments retransmitted, 1 not closed yet"
        );
        let complaints: Vec<_> = record().refusals().collect();
        assert_eq!(
            complaints,
            ["mss: the kernel refused it for 2 sockets: Invalid argument (os error 22)"]
        );
    }

    #[test]
    fn record_is_flat_json() {
        let json = serde_json::to_value(record()).unwrap();
        assert_eq!(json["connected"], 2);
        assert_eq!(json["refused"][0]["setting"], "mss");
        assert!(json.get("sockets_without_gso").is_none());
    }
}
