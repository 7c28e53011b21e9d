// SPDX-License-Identifier: MIT OR Apache-2.0
//! Netlink notifications of changes to the tables, policy rules and routes of interception in this network namespace.

use super::{
    marks::{Marks, TABLE_PREFIX},
    message::{self, Received, TABLES, attributes, attributes_after, split},
};
use netlink_sys::{
    Socket,
    protocols::{NETLINK_NETFILTER, NETLINK_ROUTE},
};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    io,
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// `NFNLGRP_NFTABLES`.
const TABLES_GROUP: u32 = 7;
/// `RTNLGRP_LINK`, `RTNLGRP_IPV4_ROUTE`, `RTNLGRP_IPV4_RULE`, `RTNLGRP_IPV6_ROUTE` and `RTNLGRP_IPV6_RULE`.
const ROUTING_GROUPS: [u32; 5] = [1, 7, 8, 11, 19];

const DATAGRAM: usize = 64 * 1024;

/// Sockets that receive notifications of these changes.
#[derive(Debug)]
pub struct ChangeMonitor {
    tables: Socket,
    routing: Socket,
}

/// Event that ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A table, rule or route that some relay installed may have been removed.
    Changed,
    /// The other descriptor is readable.
    Readable,
    /// The time has elapsed.
    Elapsed,
}

impl ChangeMonitor {
    /// Subscribes to changes in the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            tables: join_groups(NETLINK_NETFILTER, &[TABLES_GROUP])?,
            routing: join_groups(NETLINK_ROUTE, &ROUTING_GROUPS)?,
        })
    }

    /// Waits for a change, for at most `time`, or until `other` is readable.
    pub fn wait(&self, other: &impl AsFd, time: Duration) -> io::Result<Event> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut polled = [
                PollFd::new(other, PollFlags::IN),
                PollFd::new(&self.tables, PollFlags::IN),
                PollFd::new(&self.routing, PollFlags::IN),
            ];
            match poll(&mut polled, left.try_into().ok().as_ref()) {
                Ok(0) => return Ok(Event::Elapsed),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) if !polled[0].revents().is_empty() => return Ok(Event::Readable),
                Ok(_) => {
                    // Drains both sockets.
                    let tables = drain(&self.tables, is_table_lost)?;
                    if drain(&self.routing, is_route_lost)? || tables {
                        return Ok(Event::Changed);
                    }
                }
            }
        }
    }
}

fn join_groups(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    groups
        .iter()
        .try_for_each(|group| socket.add_membership(*group))?;
    Ok(socket)
}

/// Drains the socket. Returns whether a message is relevant, or messages were lost because the socket's buffer was full.
fn drain(socket: &Socket, is_relevant: fn(&Received) -> bool) -> io::Result<bool> {
    let mut datagram = vec![0; DATAGRAM];
    let mut found = false;
    loop {
        match message::receive(socket, &mut datagram) {
            Ok(Some(len)) => found |= split(&datagram[..len]).any(|message| is_relevant(&message)),
            Ok(None) => return Ok(found),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => found = true,
            Err(error) => return Err(error),
        }
    }
}

/// Whether a relay's table, or a chain or rule of it, was deleted.
fn is_table_lost(message: &Received) -> bool {
    /// `NFT_MSG_DELTABLE`, `NFT_MSG_DELCHAIN`, `NFT_MSG_DELRULE`; the table's name is the first attribute of all three.
    const DELETIONS: [u16; 3] = [TABLES << 8 | 2, TABLES << 8 | 5, TABLES << 8 | 8];
    const TABLE: u16 = 1;
    let is_relay_table =
        |(kind, name): (u16, &[u8])| kind == TABLE && name.starts_with(TABLE_PREFIX.as_bytes());
    DELETIONS.contains(&message.kind) && attributes(message.body).any(is_relay_table)
}

/// Whether a policy rule for a relay's mark was deleted, or a route in its routing table, which has the mark's number.
/// The kernel sends no notification of routes that it removes with an interface, so changes of `lo` count, too.
fn is_route_lost(message: &Received) -> bool {
    // `RTA_TABLE`, and `FRA_FWMARK`.
    const ROUTE_TABLE: u16 = 15;
    const RULE_MARK: u16 = 10;
    // Length of both `struct rtmsg` and `struct fib_rule_hdr`.
    const HEADER_LEN: usize = 12;
    let has = |wanted| {
        attributes_after(HEADER_LEN, message.body).any(|(kind, value)| {
            let value = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
            kind == wanted && value.is_some_and(Marks::is_routed)
        })
    };
    match message.kind {
        libc::RTM_DELROUTE => has(ROUTE_TABLE),
        libc::RTM_DELRULE => has(RULE_MARK),
        libc::RTM_NEWLINK => {
            let kind = message.body.get(2..4).map(|bytes| [bytes[0], bytes[1]]);
            kind.map(u16::from_ne_bytes) == Some(libc::ARPHRD_LOOPBACK)
        }
        _ => false,
    }
}
