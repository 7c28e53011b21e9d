// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK pacing: a queueing class that limits the packets a second that leave a device. A program at the
//! sockets' cgroup marks ACKs with the class (`skb->priority`).
//!
//! HTB's class is a token bucket, and packets of no class bypass it, so that one queueing discipline
//! suffices. TBF would need PRIO above it, which not every kernel has. Tokens are bytes: every packet
//! counts as 128 bytes (`mpu`; Linux 5.17), more than a pure ACK has.
//!
//! The kernel does not remove the class when this process is killed. It then paces no packets, as no
//! program marks them. The next run or `longhaul doctor --clean` removes it ([`remove_stale`]).

use super::interface::index_here;
use std::{
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    process::Command,
};

/// Bytes that each packet counts as: more than the headers of IPv6, TCP with timestamps and Ethernet.
const PACKET_BYTES: u64 = 128;
/// The discipline's major number, which identifies it.
const MAJOR: u16 = 0xacc;
/// The class, as in `skb->priority`.
pub const CLASS: u32 = (MAJOR as u32) << 16 | 1;
/// Allowed rates, in packets a second.
pub const RATE: std::ops::RangeInclusive<u32> = 1..=10_000_000;
/// Most ACKs in the queue; 1 KiB of kernel memory each. Further ones are dropped; later ACKs replace them.
const QUEUE_PACKETS: u32 = 1000;

/// Reason why ACKs can't be paced.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network namespace has no such device.
    #[error("no interface {0:?} in this network namespace")]
    NoDevice(String),
    /// The user configured a queueing discipline, which would be lost.
    #[error("{0} has a queueing discipline that somebody chose: tc qdisc delete dev {0} root")]
    UserConfigured(String),
    /// ACKs of the device are paced by another process.
    #[error("ACKs that leave by {0} are paced by another longhaul run")]
    Busy(String),
    /// tc failed, or is not installed.
    #[error("tc: {0}")]
    Tc(String),
}

/// ACK pacing on a device, until it is dropped.
#[derive(Debug)]
pub struct AckPacing {
    device: String,
    index: u32,
    /// Claim on the device; the kernel releases its name when the process ends.
    _claim: UnixListener,
}

impl AckPacing {
    /// Limits the marked packets that leave `device` of the calling thread's network namespace to `rate` a
    /// second, in bursts of at most 100 µs at that rate.
    pub fn new(device: &str, rate: u32) -> Result<Self, Error> {
        let index = index_here(device)
            .ok()
            .ok_or_else(|| Error::NoDevice(device.to_owned()))?;
        let claim = claim_device(index).map_err(|_| Error::Busy(device.to_owned()))?;
        if root_qdisc(device)? == RootQdisc::Ours {
            remove(device)?;
        }
        if root_qdisc(device)? == RootQdisc::UserConfigured {
            return Err(Error::UserConfigured(device.to_owned()));
        }
        let pacing = Self {
            device: device.to_owned(),
            index,
            _claim: claim,
        };
        install(device, rate)?;
        Ok(pacing)
    }

    /// Returns the device's index.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for AckPacing {
    fn drop(&mut self) {
        let _ = remove(&self.device);
    }
}

/// Removes the disciplines that killed processes left in this network namespace. Returns their devices.
pub fn remove_stale() -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    for device in devices() {
        let ours = root_qdisc(&device)? == RootQdisc::Ours;
        let Some(index) = index_here(&device).ok().filter(|_| ours) else {
            continue;
        };
        if let Ok(_claim) = claim_device(index) {
            remove(&device)?;
            removed.push(device);
        }
    }
    Ok(removed)
}

fn devices() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let named = text.lines().filter_map(|line| line.split_once(':'));
    named.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Claims a device by an abstract socket name. Both are unique in a network namespace.
fn claim_device(index: u32) -> io::Result<UnixListener> {
    let name = format!("longhaul-ack-pacing-{index}");
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Origin of a device's root queueing discipline.
#[derive(Debug, PartialEq, Eq)]
enum RootQdisc {
    /// The kernel's default, which has handle 0.
    Kernel,
    Ours,
    UserConfigured,
}

fn root_qdisc(device: &str) -> Result<RootQdisc, Error> {
    let output = tc(&format!("qdisc show dev {device} root"))?;
    Ok(parse_root_qdisc(&output))
}

/// Parses `qdisc KIND HANDLE: root …`; empty without a discipline.
fn parse_root_qdisc(output: &str) -> RootQdisc {
    let mut words = output.split_whitespace().skip(1);
    match (words.next(), words.next()) {
        (Some("htb"), Some(handle)) if handle == format!("{MAJOR:x}:") => RootQdisc::Ours,
        (Some(_), Some(handle)) if handle != "0:" => RootQdisc::UserConfigured,
        _ => RootQdisc::Kernel,
    }
}

fn install(device: &str, rate: u32) -> Result<(), Error> {
    let bytes = u64::from(rate) * PACKET_BYTES;
    // Allows for a timer that is late by 100 µs.
    let burst = (u64::from(rate) / 10_000).max(1) * PACKET_BYTES;
    let major = format!("{MAJOR:x}");
    let outcome = tc(&format!("qdisc add dev {device} root handle {major}: htb"))
        .and_then(|_| {
            tc(&format!(
                "class add dev {device} parent {major}: classid {major}:1 htb rate {bytes}bps \
                 burst {burst} cburst {burst} mpu {PACKET_BYTES}"
            ))
        })
        .and_then(|_| {
            tc(&format!(
                "qdisc add dev {device} parent {major}:1 pfifo limit {QUEUE_PACKETS}"
            ))
        });
    outcome.map(drop)
}

fn remove(device: &str) -> Result<(), Error> {
    tc(&format!("qdisc delete dev {device} root")).map(drop)
}

fn tc(arguments: &str) -> Result<String, Error> {
    let run = Command::new("tc").args(arguments.split(' ')).output();
    let output = run.map_err(|error| Error::Tc(format!("{error} (iproute2 has it)")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(Error::Tc(text(&output.stderr).replace('\n', "; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_kernel_defaults_from_configured_qdiscs() {
        for (output, root) in [
            ("", RootQdisc::Kernel),
            ("qdisc noqueue 0: root refcnt 2", RootQdisc::Kernel),
            (
                "qdisc fq_codel 0: root refcnt 2 limit 10240p",
                RootQdisc::Kernel,
            ),
            ("qdisc fq 8001: root refcnt 2", RootQdisc::UserConfigured),
            (
                "qdisc htb 1: root refcnt 2 r2q 10",
                RootQdisc::UserConfigured,
            ),
            ("qdisc htb acc: root refcnt 2 r2q 10", RootQdisc::Ours),
        ] {
            assert_eq!(parse_root_qdisc(output), root, "{output}");
        }
    }
}
