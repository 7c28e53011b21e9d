// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where packets come from: rings of interfaces.

use anyhow::Result;
use longhaul_command::exit::Refusal;
use longhaul_command::note;
use longhaul_linux::{
    netns::{self, Netns},
    packet_ring::{Clock, HardwareClock, OpenError, RING_MAX, RING_MIN, Request, Ring},
};
use longhaul_packet::{
    capture::LinkType,
    packet_filter::{self, FilterError, Instruction, LinkLayer},
};
use longhaul_units::Bytes;
use std::io;

/// Where packets shall come from, and which, as it was asked for.
pub(crate) struct Selection {
    pub(crate) interfaces: Vec<String>,
    pub(crate) filter: Filter,
    /// Most bytes to keep of a packet, 64 to 65,535.
    pub(crate) snaplen: u32,
    /// Kernel memory for each interface.
    pub(crate) ring: Bytes,
    /// Whether packets for others count.
    pub(crate) promiscuous: bool,
    /// The namespace of the interfaces; this one if absent.
    pub(crate) netns: Option<String>,
}

/// Which packets.
pub(crate) enum Filter {
    /// In the language of pcap-filter(7); empty is all.
    Expression(String),
    /// What `tcpdump -ddd` prints.
    Listing(String),
}

/// Interfaces and a filter, checked. Nothing is open yet.
pub(crate) struct Source {
    pub(crate) interfaces: Vec<String>,
    /// The filter in words, for people; empty is everything.
    pub(crate) filter: String,
    pub(crate) snaplen: u32,
    programs: Programs,
    ring_bytes: usize,
    promiscuous: bool,
    netns: Option<Netns>,
}

/// A ring, and what it is.
pub(crate) struct Tap {
    pub(crate) interface: String,
    pub(crate) ring: Ring,
    pub(crate) clock: Clock,
}

/// A filter by what stands before the IP header.
struct Programs {
    ethernet: Vec<Instruction>,
    raw: Vec<Instruction>,
}

impl Source {
    /// Refuses what can't work.
    ///
    /// # Errors
    /// A refusal that names the flag.
    pub(crate) fn check(selection: Selection) -> Result<Self> {
        if let Some(twice) = repeated(&selection.interfaces) {
            return Err(Refusal::usage(format!("interface {twice} is there twice")));
        }
        Ok(Self {
            programs: Programs::of(&selection.filter, selection.snaplen).map_err(Refusal::usage)?,
            interfaces: selection.interfaces,
            filter: in_words(selection.filter),
            snaplen: selection.snaplen,
            ring_bytes: ring_bytes(selection.ring)?,
            promiscuous: selection.promiscuous,
            netns: selection.netns.as_deref().map(namespace).transpose()?,
        })
    }

    /// A ring for each interface. Times come from hardware where it is worth it.
    pub(crate) fn open(&self) -> Result<Vec<Tap>> {
        let all = || self.interfaces.iter().map(|name| self.tap(name)).collect();
        match &self.netns {
            None => all(),
            Some(netns) => netns.run(|| Ok(all())).map_err(not_entered)?,
        }
    }

    fn tap(&self, interface: &str) -> Result<Tap> {
        let clock = clock(interface);
        let request = Request {
            interface,
            ring_bytes: self.ring_bytes,
            promiscuous: self.promiscuous,
            clock,
        };
        let ring = Ring::open(&request, |link_type| self.programs.on(link_type));
        Ok(Tap {
            interface: interface.to_owned(),
            ring: ring.map_err(refusal)?,
            clock,
        })
    }
}

impl Programs {
    fn of(filter: &Filter, snaplen: u32) -> Result<Self, FilterError> {
        let program = |layer| match filter {
            Filter::Listing(listing) => packet_filter::read_listing(listing, snaplen),
            Filter::Expression(text) => packet_filter::compile(text, layer, snaplen),
        };
        Ok(Self {
            ethernet: program(LinkLayer::Ethernet)?,
            raw: program(LinkLayer::None)?,
        })
    }

    fn on(&self, link_type: LinkType) -> Vec<Instruction> {
        match link_type {
            LinkType::Raw => self.raw.clone(),
            _ => self.ethernet.clone(),
        }
    }
}

fn repeated(names: &[String]) -> Option<&String> {
    let earlier = |(i, name): &(usize, &String)| names[..*i].contains(name);
    names.iter().enumerate().find(earlier).map(|(_, name)| name)
}

fn in_words(filter: Filter) -> String {
    match filter {
        Filter::Listing(_) => "as tcpdump -ddd has it".to_owned(),
        Filter::Expression(text) => text,
    }
}

fn ring_bytes(size: Bytes) -> Result<usize> {
    let bytes = usize::try_from(size.get()).unwrap_or(usize::MAX);
    if (RING_MIN..=RING_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    let range = "512KiB to 2GiB for each interface";
    Err(Refusal::usage(format!("--ring {size}: choose {range}")))
}

fn namespace(name: &str) -> Result<Netns> {
    Netns::named(name).map_err(|error| {
        Refusal::usage(format!(
            "network namespace {name:?} in {}: {error}; make it with: ip netns add {name}",
            netns::DIRECTORY
        ))
    })
}

fn not_entered(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Refusal::unsupported("entering a namespace needs CAP_SYS_ADMIN: run as root")
        }
        _ => error.into(),
    }
}

/// The card's where it is in step with the system's. Who expects it to be hears why it is not used.
fn clock(interface: &str) -> Clock {
    match HardwareClock::of(interface) {
        Ok(HardwareClock::InStep) => Clock::Hardware,
        Ok(HardwareClock::Apart(offset)) => {
            note!(
                "{interface}: its clock is {offset} from the system's, so the kernel stamps packets; \
                 phc2sys brings them together"
            );
            Clock::Software
        }
        Ok(HardwareClock::Absent) | Err(_) => Clock::Software,
    }
}

fn refusal(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::NoInterface(_) | OpenError::Down(_) | OpenError::Memory { .. } => {
            Refusal::usage(error)
        }
        OpenError::NotPermitted | OpenError::Kind { .. } => Refusal::unsupported(error),
        OpenError::Kernel { .. } => error.into(),
    }
}
