// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of captured packets: a packet ring for each interface.

use super::filter_expression;
use anyhow::Result;
use longhaul_command::errln;
use longhaul_command::exit::Refusal;
use longhaul_linux::{
    netns::Netns,
    packet_ring::{Clock, HardwareClock, OpenError, RING_MAX, RING_MIN, Ring, RingConfig},
};
use longhaul_packet::{
    capture::LinkType,
    packet_filter::{self, Instruction},
};
use longhaul_units::Bytes;
use std::io;

/// Interfaces, filter and options, as requested.
pub(crate) struct Selection {
    pub(crate) interfaces: Vec<String>,
    pub(crate) filter: Filter,
    /// Maximum number of bytes to keep of a packet, 64 to 65,535.
    pub(crate) snaplen: u32,
    /// Kernel memory for each interface.
    pub(crate) ring: Bytes,
    /// Captures packets for other hosts, too.
    pub(crate) promiscuous: bool,
    /// Network namespace of the interfaces; the current one if absent.
    pub(crate) netns: Option<String>,
}

/// Packet filter.
pub(crate) enum Filter {
    /// No filter.
    All,
    /// Expression of pcap-filter(7).
    Expression(String),
    /// Program as `tcpdump -ddd` prints it.
    Listing(String),
}

/// Interfaces and a filter, validated. Nothing is open yet.
pub(crate) struct Source {
    pub(crate) interfaces: Vec<String>,
    /// Filter as text for users; empty for all packets.
    pub(crate) filter: String,
    pub(crate) snaplen: u32,
    programs: FilterPrograms,
    ring_bytes: usize,
    promiscuous: bool,
    netns: Option<Netns>,
}

/// Open packet ring of an interface.
pub(crate) struct InterfaceRing {
    pub(crate) interface: String,
    pub(crate) ring: Ring,
    pub(crate) clock: Clock,
}

/// Filter programs by the link layer before the IP header.
///
/// An expression may be valid on one of them only, as `ether host` is. The other then has the reason.
struct FilterPrograms {
    ethernet: Result<Vec<Instruction>, String>,
    raw: Result<Vec<Instruction>, String>,
}

impl Source {
    /// Validates a selection.
    ///
    /// # Errors
    /// A value is not valid: a refusal that names the flag.
    pub(crate) fn new(selection: Selection) -> Result<Self> {
        if let Some(name) = find_duplicate(&selection.interfaces) {
            return Err(Refusal::usage(format!("interface {name} is given twice")));
        }
        let netns = selection.netns.as_deref().map(Netns::named).transpose();
        Ok(Self {
            programs: FilterPrograms::new(&selection.filter, selection.snaplen)?,
            interfaces: selection.interfaces,
            filter: describe_filter(selection.filter),
            snaplen: selection.snaplen,
            ring_bytes: ring_bytes(selection.ring)?,
            promiscuous: selection.promiscuous,
            netns: netns.map_err(Refusal::usage)?,
        })
    }

    /// Opens a ring for each interface. Timestamps come from hardware if its clock is synchronised.
    pub(crate) fn open(&self) -> Result<Vec<InterfaceRing>> {
        let open_all = || {
            self.interfaces
                .iter()
                .map(|name| self.open_ring(name))
                .collect()
        };
        match &self.netns {
            None => open_all(),
            Some(netns) => netns.run(|| Ok(open_all())).map_err(namespace_error)?,
        }
    }

    fn open_ring(&self, interface: &str) -> Result<InterfaceRing> {
        let clock = select_clock(interface);
        let request = RingConfig {
            interface,
            ring_bytes: self.ring_bytes,
            promiscuous: self.promiscuous,
            clock,
        };
        let ring = Ring::open(&request, |link_type| self.programs.for_link_type(link_type));
        Ok(InterfaceRing {
            interface: interface.to_owned(),
            ring: ring.map_err(open_refusal)?,
            clock,
        })
    }
}

impl FilterPrograms {
    /// Fails if the filter is valid on no link layer.
    fn new(filter: &Filter, snaplen: u32) -> Result<Self> {
        let program = |link_type| match filter {
            Filter::All => Ok(packet_filter::accept_all(snaplen)),
            Filter::Listing(listing) => parse_listing(listing, snaplen),
            Filter::Expression(text) => filter_expression::compile(text, link_type, snaplen),
        };
        let (ethernet, raw) = (program("EN10MB"), program("RAW"));
        match (ethernet, raw) {
            (Err(reason), Err(_)) => Err(Refusal::usage(reason)),
            (ethernet, raw) => Ok(Self { ethernet, raw }),
        }
    }

    fn for_link_type(&self, link_type: LinkType) -> Result<Vec<Instruction>, String> {
        match link_type {
            LinkType::Raw => self.raw.clone(),
            _ => self.ethernet.clone(),
        }
    }
}

fn find_duplicate(names: &[String]) -> Option<&String> {
    let is_duplicate = |(i, name): &(usize, &String)| names[..*i].contains(name);
    names
        .iter()
        .enumerate()
        .find(is_duplicate)
        .map(|(_, name)| name)
}

fn describe_filter(filter: Filter) -> String {
    match filter {
        Filter::All => String::new(),
        Filter::Listing(_) => "BPF program of --filter-bpf".to_owned(),
        Filter::Expression(text) => text,
    }
}

/// Maximum number of characters of a program in an error message.
const SHOWN_CHARS_MAX: usize = 40;

/// Reads the value of --filter-bpf. A refusal has the flag and the start of its value.
fn parse_listing(listing: &str, snaplen: u32) -> Result<Vec<Instruction>, String> {
    packet_filter::parse_listing(listing, snaplen).map_err(|error| {
        let start: String = listing.chars().take(SHOWN_CHARS_MAX).collect();
        let more = if start.len() < listing.len() {
            "…"
        } else {
            ""
        };
        format!("--filter-bpf {start:?}{more}: {error}")
    })
}

fn ring_bytes(size: Bytes) -> Result<usize> {
    let bytes = usize::try_from(size.get()).unwrap_or(usize::MAX);
    if (RING_MIN..=RING_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    let range = "512KiB to 2GiB for each interface";
    Err(Refusal::usage(format!("--ring {size}: choose {range}")))
}

fn namespace_error(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Refusal::unsupported("entering a namespace needs CAP_SYS_ADMIN: run as root")
        }
        _ => error.into(),
    }
}

/// Returns the network card's clock if it is synchronised with the system's. Prints a notice if it exists but is not.
fn select_clock(interface: &str) -> Clock {
    match HardwareClock::of(interface) {
        Ok(HardwareClock::Synchronized) => Clock::Hardware,
        Ok(HardwareClock::Offset(offset)) => {
            errln!(
                "{interface}: its clock differs from the system's by {offset}, so packets get timestamps of the kernel; \
                 phc2sys synchronises the clocks"
            );
            Clock::Software
        }
        Ok(HardwareClock::Absent) | Err(_) => Clock::Software,
    }
}

fn open_refusal(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::NoInterface(_)
        | OpenError::Down(_)
        | OpenError::Memory { .. }
        | OpenError::Filter { .. } => Refusal::usage(error),
        OpenError::NotPermitted | OpenError::Kind { .. } => Refusal::unsupported(error),
        OpenError::Kernel { .. } => error.into(),
    }
}
