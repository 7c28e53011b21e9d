// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validated configuration. Validation touches nothing except the files that are named.

pub(super) mod file;
pub(super) mod options;

use super::capture::CaptureOptions;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_linux::{memory::machine_bytes, netns::Netns};
use longhaul_netem::{Delivery, LinkConfig, ScheduledConfig};
use longhaul_units::{BitRate, Bytes, Time, WithInput};
use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

/// Validated arguments of the command.
#[derive(Debug)]
pub(super) struct Config {
    /// Links to create, at least one.
    pub(super) links: Vec<Link>,
    /// Threads of each link: 1 or 2.
    pub(super) threads: usize,
    /// Whether to run at real-time priority.
    pub(super) realtime: bool,
    /// File for counters; `-` is standard output.
    pub(super) counters: Option<PathBuf>,
    /// Interval at which counters are written and shown.
    pub(super) interval: Time,
    /// Time after which the link ends, if any.
    pub(super) duration: Option<Time>,
}

/// A validated link.
#[derive(Debug)]
pub(super) struct Link {
    /// Name in records and for `longhaul link set`.
    pub(super) name: String,
    /// Left end.
    pub(super) left: Endpoint,
    /// Right end.
    pub(super) right: Endpoint,
    /// Configuration from left to right.
    pub(super) forward: DirectionConfig,
    /// Configuration from right to left.
    pub(super) backward: DirectionConfig,
    /// Largest packet, bytes.
    pub(super) mtu: u32,
    /// Grouping of due segments into writes.
    pub(super) delivery: Delivery,
    /// Whether super-packets are enabled.
    pub(super) offload: bool,
    /// Seed of all random decisions.
    pub(super) seed: u64,
    /// Options of the capture, if any.
    pub(super) capture: Option<CaptureOptions>,
}

/// Configuration of one direction.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectionConfig {
    /// Settings at the start, and later changes.
    pub(super) settings: ScheduledConfig,
    /// Bytes that it may store, if specified.
    pub(super) memory: Option<Bytes>,
}

/// End of a link: the interface to create, its namespace, and its addresses.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// Namespace; `None` is the current one.
    netns: Option<String>,
    /// Name of the interface.
    pub(super) interface: String,
    /// Addresses with their prefixes.
    pub(super) addresses: Vec<(IpAddr, u8)>,
}

/// Rate that the memory of an unlimited direction is sized for: 10 Gbit/s for 200 ms.
const UNLIMITED_RATE: u64 = 10_000_000_000;
/// Least interval for counters: with shorter ones they would take all the time.
const INTERVAL_MIN: Time = Time::from_millis(1);
/// Least memory of a direction: two super-packets of the kernel. With less the link carries nothing.
const MEMORY_MIN: u64 = 128_000;
/// Memory in addition to the need of the settings: 64 of the longest packets.
const MEMORY_RESERVE: u64 = 4 << 20;
/// Most memory of a direction without an explicit `--memory`.
const MEMORY_MAX: u64 = 4 << 30;

impl DirectionConfig {
    /// Checks the settings at the start and at any time of the schedule.
    pub(super) fn check(&self) -> Result<()> {
        for config in self.settings.configs() {
            config
                .check()
                .map_err(|error| Refusal::option("queue", error))?;
        }
        let (bytes, machine) = (self.memory_bytes()? as u64, machine_bytes());
        if bytes > machine {
            let text = format!(
                "--memory: a direction would take up to {}, and this machine has {}",
                Bytes::new(bytes),
                Bytes::new(machine)
            );
            return Err(Refusal::option("memory", text));
        }
        Ok(())
    }

    /// Returns the bytes that this direction may store: the specified memory, or twice what its settings need at any
    /// time of its schedule. At an unlimited rate no number follows from the settings, so any memory is accepted.
    pub(super) fn memory_bytes(&self) -> Result<usize> {
        let configs = || self.settings.configs();
        let needed = configs().map(|config| required_bytes(&config));
        let needed = needed.max().unwrap_or_default();
        let is_limited = configs().all(|config| config.rate.mean().is_some());
        if let Some(memory) = self.memory.filter(|memory| memory.get() < MEMORY_MIN) {
            let least = Bytes::new(MEMORY_MIN);
            let text = format!("memory {memory}: a direction needs {least} at least");
            return Err(Refusal::option("memory", text));
        }
        let bytes = needed.saturating_mul(2) + MEMORY_RESERVE;
        let need = format!(
            "delay, rate and queue need {} a direction",
            Bytes::new(needed)
        );
        match self.memory {
            Some(memory) if memory.get() >= needed || !is_limited => Ok(memory.get() as usize),
            Some(memory) => Err(Refusal::option(
                "memory",
                format!("--memory {memory}: {need}"),
            )),
            None if bytes <= MEMORY_MAX => Ok(bytes as usize),
            None if !is_limited => Ok(MEMORY_MAX.min(machine_bytes() / 4) as usize),
            None => Err(Refusal::option(
                "delay",
                format!("{need}; allow that with --memory"),
            )),
        }
    }
}

/// Returns the most bytes in flight and in the queue.
fn required_bytes(config: &LinkConfig) -> u64 {
    let rate = config
        .rate
        .mean()
        .unwrap_or(BitRate::from_bits(UNLIMITED_RATE));
    let ack_delay = if config.ack.thin > 0 {
        config.ack.max_delay
    } else {
        Time::ZERO
    };
    let spread = config.jitter.longest() + config.reorder.hold + ack_delay;
    let limit = config.queue_capacity();
    let queue = limit
        .bytes
        .min((limit.packets as u64).saturating_mul(u64::from(config.mtu)));
    let queued = if config.rate.mean().is_some() {
        queue
    } else {
        0
    };
    rate.bytes_in(config.delay + spread) + queued
}

impl Endpoint {
    /// Parses `[NAMESPACE:]INTERFACE:ADDRESS/PREFIX[,ADDRESS/PREFIX]`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let error = |why: &str| {
            Refusal::usage(format!(
                "end {text:?}: {why}; write [NAMESPACE:]INTERFACE:ADDRESS/PREFIX, such as \
                 client:wan0:10.9.0.1/30"
            ))
        };
        let (first, rest) = text.split_once(':').ok_or_else(|| error("no address"))?;
        let addresses = |text: &str| {
            text.split(',')
                .map(parse_address)
                .collect::<Option<Vec<_>>>()
        };
        // An IPv6 address contains colons, and a name may look like its first group.
        let (netns, interface, rest) = match rest.split_once(':') {
            Some((interface, after)) if addresses(rest).is_none() => {
                (Some(first), interface, after)
            }
            _ => (None, first, rest),
        };
        if !is_interface_name(interface) {
            return Err(error(
                "an interface name has 1 to 15 characters, no space and none of / : %",
            ));
        }
        Ok(Self {
            netns: netns.filter(|name| !name.is_empty()).map(str::to_owned),
            interface: interface.to_owned(),
            addresses: addresses(rest).ok_or_else(|| error("the address is not ADDRESS/PREFIX"))?,
        })
    }

    /// Opens the namespace.
    pub(super) fn open(&self) -> Result<Netns> {
        match &self.netns {
            Some(name) => Netns::named(name).map_err(Refusal::usage),
            None => Ok(Netns::current()?),
        }
    }
}

/// Returns whether the kernel accepts the name for an interface, and not as a pattern of names (`dev_valid_name`,
/// `sysctl_dev_name_is_allowed`).
fn is_interface_name(name: &str) -> bool {
    let is_invalid = |letter: char| {
        letter.is_whitespace() || letter.is_control() || ['/', ':', '%'].contains(&letter)
    };
    (1..=15).contains(&name.len())
        && ![".", "..", "all", "default"].contains(&name)
        && !name.contains(is_invalid)
}

fn parse_address(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix = prefix.parse().ok()?;
    (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
}

impl Config {
    /// Returns warnings of settings that are valid and seldom meant, each once.
    pub(super) fn warnings(&self) -> BTreeSet<String> {
        let of_link = |link: &Link| {
            let both = &link.forward.settings.warnings() | &link.backward.settings.warnings();
            both.into_iter()
                .map(|text| format!("link {}: {text}", link.name))
                .collect::<Vec<_>>()
        };
        self.links.iter().flat_map(of_link).collect()
    }

    /// Checks all links.
    ///
    /// # Errors
    /// Exit code 2: the error, with the link's name.
    pub(super) fn check(self) -> Result<Self> {
        self.links.iter().try_for_each(check_link)?;
        check_interfaces(&self.links)?;
        check_captures(&self.links, self.counters.as_deref())?;
        Ok(self)
    }
}

/// Checks the interval for counters.
pub(super) fn check_interval(interval: &WithInput<Time>) -> Result<()> {
    if interval.value < INTERVAL_MIN {
        let least = INTERVAL_MIN.exact();
        let text = format!("--interval {interval}: give {least} or more");
        Err(Refusal::option("interval", text))
    } else {
        Ok(())
    }
}

fn check_link(link: &Link) -> Result<()> {
    if !(1_280..=9_000).contains(&link.mtu) {
        return Err(Refusal::usage(format!(
            "mtu {}: an MTU is 1280 to 9000 bytes",
            link.mtu
        )));
    }
    let with_link_name = |error| Refusal::with_prefix(error, &format!("link {:?}: ", link.name));
    check_name(&link.name)?;
    check_ends(link).map_err(with_link_name)?;
    link.forward.check().map_err(with_link_name)?;
    link.backward.check().map_err(with_link_name)?;
    link.capture
        .as_ref()
        .map_or(Ok(()), |capture| capture.check().map_err(with_link_name))
}

/// Checks the name of a link: commands, records and lists of names contain it.
fn check_name(name: &str) -> Result<()> {
    let is_bad = |letter: char| letter.is_whitespace() || letter.is_control();
    if name.is_empty() || name.contains(is_bad) {
        Err(Refusal::usage(format!(
            "name {name:?}: a link's name has at least one character, and no space"
        )))
    } else {
        Ok(())
    }
}

/// Checks that the ends have no address in common.
fn check_ends(link: &Link) -> Result<()> {
    let right: Vec<_> = link.right.addresses.iter().map(|(ip, _)| ip).collect();
    let mut left = link.left.addresses.iter().map(|(ip, _)| ip);
    match left.find(|ip| right.contains(ip)) {
        Some(ip) => Err(Refusal::usage(format!(
            "both ends have the address {ip}: give each its own"
        ))),
        None => Ok(()),
    }
}

/// Checks that each end has an interface of its own: a start that fails later has emptied files already.
fn check_interfaces(links: &[Link]) -> Result<()> {
    let mut known = BTreeSet::new();
    let mut ends = links.iter().flat_map(|link| [&link.left, &link.right]);
    match ends.find(|end| !known.insert((&end.netns, &end.interface))) {
        Some(end) => Err(Refusal::usage(format!(
            "two ends have the interface {}: give each its own",
            end.interface
        ))),
        None => Ok(()),
    }
}

/// Checks that no two links, and no capture and the counters, write to the same file.
fn check_captures(links: &[Link], counters: Option<&Path>) -> Result<()> {
    let counters = counters.filter(|path| *path != Path::new("-"));
    let counters = counters.map(canonical_path);
    let mut paths = BTreeSet::new();
    for path in links
        .iter()
        .filter_map(|link| Some(&link.capture.as_ref()?.path))
    {
        let conflict = match is_device(path) {
            true => continue,
            false if counters == Some(canonical_path(path)) => {
                "a capture and --counters both have the file"
            }
            false if !paths.insert(canonical_path(path)) => "two links have the capture file",
            false => continue,
        };
        return Err(Refusal::usage(format!(
            "{conflict} {}: give each its own",
            path.display()
        )));
    }
    Ok(())
}

/// Returns the same path for every spelling of a file, also if only its directory exists yet.
fn canonical_path(path: &Path) -> PathBuf {
    let directory = path.parent().filter(|parent| parent != &Path::new(""));
    let directory = fs::canonicalize(directory.unwrap_or(Path::new(".")));
    let below = |directory: PathBuf| Some(directory.join(path.file_name()?));
    fs::canonicalize(path)
        .ok()
        .or_else(|| below(directory.ok()?))
        .unwrap_or_else(|| path.to_owned())
}

/// Returns whether the path is a character device such as `/dev/null`, which several writers may share.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device())
}

/// Returns a reader of the files that settings name, relative to `base`.
pub(super) fn reader(base: &Path) -> impl Fn(&str) -> Result<String, String> {
    move |name| fs::read_to_string(base.join(name)).map_err(|error| error.to_string())
}

/// Returns the configurations of both directions with these options. Files in them are relative to `base`.
pub(super) fn directions(
    options: &[(&str, &str)],
    mtu: u32,
    memory: Option<Bytes>,
    base: &Path,
) -> Result<[DirectionConfig; 2]> {
    let both = ScheduledConfig::of_options(options, mtu, &reader(base));
    let both = both.map_err(|error| Refusal::option(error.option, error.problem))?;
    Ok(both.map(|settings| DirectionConfig { settings, memory }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_ends_with_and_without_namespace() {
        let end = Endpoint::parse("client:wan0:10.9.0.1/30,fd00::1/64").unwrap();
        assert_eq!(
            (end.netns.as_deref(), end.interface.as_str()),
            (Some("client"), "wan0")
        );
        assert_eq!(end.addresses.len(), 2);
        // Names that could be groups of an IPv6 address.
        let hex = Endpoint::parse("c:cafe:10.9.0.1/30").unwrap();
        assert_eq!(
            (hex.netns.as_deref(), hex.interface.as_str()),
            (Some("c"), "cafe")
        );
        let here = Endpoint::parse("wan0:fd00::1/64").unwrap();
        assert_eq!((here.netns, here.interface.as_str()), (None, "wan0"));
    }

    #[test]
    fn rejects_invalid_ends_with_example() {
        for bad in [
            "wan0",
            "a:b",
            "a:b:10.9.0.1",
            "a:b:10.9.0.1/33",
            "a:sixteen-letters-x:10.0.0.1/8",
            "a:b c:10.0.0.1/8",
            "a:b/c:10.0.0.1/8",
            "a:w%d:10.0.0.1/8",
            "a:..:10.0.0.1/8",
            "a:all:10.0.0.1/8",
        ] {
            let message = Endpoint::parse(bad).unwrap_err().to_string();
            assert!(message.contains("client:wan0:10.9.0.1/30"), "{message}");
        }
    }

    #[test]
    fn memory_is_twice_the_need_of_settings() {
        let options = [("rate", "10gbit"), ("delay", "13ms"), ("queue", "1bdp")];
        let [direction, _] = directions(&options, 1_500, None, Path::new(".")).unwrap();
        let in_flight = 16_250_000;
        let queued = 32_500_000;
        let need = in_flight + queued;
        assert_eq!(
            direction.memory_bytes().unwrap(),
            2 * need + MEMORY_RESERVE as usize
        );
    }
}
