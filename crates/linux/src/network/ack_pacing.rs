// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queueing class that lets so many packets a second leave a device: for ACKs, which a program at
//! the sockets' cgroup marks with it (`skb->priority`).
//!
//! HTB's class is a token bucket; what belongs to no class passes by it at once, so that one queueing
//! discipline serves both, where TBF would need PRIO above it, which not every kernel has. Tokens are
//! bytes: every packet counts for 128 bytes (as `mpu`; Linux 5.17), more than a pure ACK has.
//!
//! The kernel does not take it away when this process is killed. It then paces nothing, as nobody
//! marks packets, and the next run or `longhaul doctor --clean` removes it ([`sweep`]).

use super::interface::index_here;
use std::{
    fs, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    process::Command,
};

/// What each packet counts for: more than IPv6, TCP with timestamps and Ethernet have.
const PACKET_BYTES: u64 = 128;
/// The discipline's major number, by which it is known.
const MAJOR: u16 = 0xacc;
/// The class, as `skb->priority` names it.
pub const CLASS: u32 = (MAJOR as u32) << 16 | 1;
/// Packets a second.
pub const RATE: std::ops::RangeInclusive<u32> = 1..=10_000_000;
/// ACKs that may wait; 1 KiB of kernel memory each. More are lost, which later ones make good.
const QUEUE_PACKETS: u32 = 1000;

/// Why ACKs can't be paced.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such device here.
    #[error("no interface {0:?} in this network namespace")]
    NoDevice(String),
    /// Somebody chose a queueing discipline, which would be lost.
    #[error("{0} has a queueing discipline that somebody chose: tc qdisc delete dev {0} root")]
    UserConfigured(String),
    /// Another run does so.
    #[error("ACKs that leave by {0} are paced by another longhaul run")]
    Busy(String),
    /// tc refused, or is not there.
    #[error("tc: {0}")]
    Tc(String),
}

/// Paces until it is dropped.
#[derive(Debug)]
pub struct AckPacing {
    device: String,
    index: u32,
    /// Its name says that somebody is alive; the kernel takes it back at any end.
    _alive: UnixListener,
}

impl AckPacing {
    /// Lets `rate` marked packets a second leave `device` of the calling thread's network namespace,
    /// in bursts of at most 100 µs' worth.
    pub fn new(device: &str, rate: u32) -> Result<Self, Error> {
        let index = index_here(device)
            .ok()
            .ok_or_else(|| Error::NoDevice(device.to_owned()))?;
        let alive = claim_device(index).map_err(|_| Error::Busy(device.to_owned()))?;
        if root_qdisc(device)? == RootQdisc::Ours {
            remove(device)?;
        }
        if root_qdisc(device)? == RootQdisc::UserConfigured {
            return Err(Error::UserConfigured(device.to_owned()));
        }
        let pacing = Self {
            device: device.to_owned(),
            index,
            _alive: alive,
        };
        install(device, rate)?;
        Ok(pacing)
    }

    /// The device's number.
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

/// Removes what killed processes left in this network namespace; the devices are returned.
pub fn remove_stale() -> Result<Vec<String>, Error> {
    let mut swept = Vec::new();
    for device in devices() {
        let ours = root_qdisc(&device)? == RootQdisc::Ours;
        let Some(index) = index_here(&device).ok().filter(|_| ours) else {
            continue;
        };
        if let Ok(_alive) = claim_device(index) {
            remove(&device)?;
            swept.push(device);
        }
    }
    Ok(swept)
}

fn devices() -> Vec<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let named = text.lines().filter_map(|line| line.split_once(':'));
    named.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Abstract names belong to a network namespace, as device numbers do.
fn claim_device(index: u32) -> io::Result<UnixListener> {
    let name = format!("longhaul-ack-pacing-{index}");
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Who made a device's outermost queueing discipline.
#[derive(Debug, PartialEq, Eq)]
enum RootQdisc {
    /// The kernel, which gives it no number.
    Kernel,
    Ours,
    UserConfigured,
}

fn root_qdisc(device: &str) -> Result<RootQdisc, Error> {
    let shown = tc(&format!("qdisc show dev {device} root"))?;
    Ok(parse_root_qdisc(&shown))
}

/// `qdisc KIND HANDLE: root …`; nothing at all without one.
fn parse_root_qdisc(shown: &str) -> RootQdisc {
    let mut words = shown.split_whitespace().skip(1);
    match (words.next(), words.next()) {
        (Some("htb"), Some(handle)) if handle == format!("{MAJOR:x}:") => RootQdisc::Ours,
        (Some(_), Some(handle)) if handle != "0:" => RootQdisc::UserConfigured,
        _ => RootQdisc::Kernel,
    }
}

fn install(device: &str, rate: u32) -> Result<(), Error> {
    let bytes = u64::from(rate) * PACKET_BYTES;
    // What a timer that is late by as much makes good.
    let burst = (u64::from(rate) / 10_000).max(1) * PACKET_BYTES;
    let major = format!("{MAJOR:x}");
    let done = tc(&format!("qdisc add dev {device} root handle {major}: htb"))
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
    done.map(drop)
}

fn remove(device: &str) -> Result<(), Error> {
    tc(&format!("qdisc delete dev {device} root")).map(drop)
}

fn tc(arguments: &str) -> Result<String, Error> {
    let run = Command::new("tc").args(arguments.split(' ')).output();
    let output = run.map_err(|error| Error::Tc(format!("{error} (iproute2 has it)")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(Error::Tc(text(&output.stderr).replace('\n', "; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_chose_may_go() {
        for (shown, root) in [
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
            assert_eq!(parse_root_qdisc(shown), root, "{shown}");
        }
    }
}
