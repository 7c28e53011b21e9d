// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy routing that delivers a listener's marked packets to this host, whatever their destination. It is the second
//! half of a transparent proxy (Linux `Documentation/networking/tproxy.rst`).

use super::{
    interface::{ignore_errno, index_of, request},
    netfilter::{Family, marks::Marks},
    netns::Netns,
};
use netlink_packet_route::{
    AddressFamily,
    route::{RouteMessage, RouteScope, RouteType},
    rule::{RuleAction, RuleAttribute, RuleMessage},
};
use rtnetlink::RouteMessageBuilder;
use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Priority of the rules: before the main table (32766), and before most rules that users add.
const PRIORITY: u32 = 1000;

/// Routes and rules of one listener's marks, of one address family, in the calling thread's network namespace.
#[derive(Debug, Clone, Copy)]
pub struct Diversion {
    family: Family,
    marks: Marks,
}

impl Diversion {
    /// Describes the diversion of the listener with these marks; [`Self::install`] puts it into the kernel.
    #[must_use]
    pub fn new(family: Family, marks: Marks) -> Self {
        Self { family, marks }
    }

    /// Adds the missing routes and rules, with `reroutes` also those for this host's own connections. Returns whether any
    /// was missing.
    pub fn install(&self, reroutes: bool) -> io::Result<bool> {
        let here = Netns::current()?;
        let action = self.action("route", "to this host");
        let route = self.local_default_route(&here)?;
        // The route first: a marked packet without a route would follow the main table.
        let mut is_new = request(&here, &action, async |kernel| {
            false_if_exists(kernel.route().add(route).execute().await)
        })?;
        let rules = self.rules().into_iter();
        for (rule, _) in rules.filter(|(_, reroutes_only)| reroutes || !reroutes_only) {
            is_new |= request(&here, &action, async |kernel| {
                let mut request = kernel.rule().add();
                *request.message_mut() = rule;
                false_if_exists(request.execute().await)
            })?;
        }
        Ok(is_new)
    }

    /// Removes all routes and rules; missing ones are no error.
    pub fn remove(&self) -> io::Result<()> {
        let here = Netns::current()?;
        let action = self.action("stop routing", "to this host");
        for (rule, _) in self.rules() {
            request(&here, &action, async |kernel| {
                ignore_errno(libc::ENOENT, kernel.rule().del(rule).execute().await)
            })?;
        }
        let route = self.local_default_route(&here)?;
        request(&here, &action, async |kernel| {
            ignore_errno(libc::ESRCH, kernel.route().del(route).execute().await)
        })
    }

    fn action(&self, verb: &str, to: &str) -> String {
        let (family, mark) = (self.family.name(), self.marks.diverted());
        format!("{verb} {family} packets marked {mark:#x} {to}")
    }

    /// Returns the number of the routing table, which equals the mark.
    fn table(&self) -> u32 {
        self.marks.diverted()
    }

    /// Returns all rules, and whether each is for this host's own connections only.
    ///
    /// The kernel also looks up the source of an IPv4 packet, to drop packets that no reply could reach. Where
    /// `src_valid_mark` is set, it uses the packet's mark (net/ipv4/fib_frontend.c, `__fib_validate_source`). That look-up
    /// comes from `lo` and must not find this host, so a rule sends it to the main table.
    fn rules(&self) -> Vec<(RuleMessage, bool)> {
        const MAIN: u32 = libc::RT_TABLE_MAIN as u32;
        let table = self.table();
        let mut validation = self.rule(self.marks.diverted(), MAIN, PRIORITY - 1);
        validation
            .attributes
            .push(RuleAttribute::Iifname("lo".to_owned()));
        let mut rules = vec![
            (self.rule(self.marks.diverted(), table, PRIORITY), false),
            (self.rule(self.marks.rerouted(), table, PRIORITY), true),
        ];
        if self.family == Family::Ip {
            rules.insert(0, (validation, false));
        }
        rules
    }

    fn rule(&self, mark: u32, table: u32, priority: u32) -> RuleMessage {
        let mut rule = RuleMessage::default();
        rule.header.family = match self.family {
            Family::Ip => AddressFamily::Inet,
            Family::Ip6 => AddressFamily::Inet6,
        };
        rule.header.action = RuleAction::ToTable;
        rule.attributes = vec![
            RuleAttribute::FwMark(mark),
            RuleAttribute::Table(table),
            RuleAttribute::Priority(priority),
        ];
        rule
    }

    fn local_default_route(&self, here: &Netns) -> io::Result<RouteMessage> {
        let lo = index_of(here, "lo")?;
        Ok(match self.family {
            Family::Ip => RouteMessageBuilder::<Ipv4Addr>::new()
                .table_id(self.table())
                .kind(RouteType::Local)
                .scope(RouteScope::Host)
                .output_interface(lo)
                .build(),
            Family::Ip6 => RouteMessageBuilder::<Ipv6Addr>::new()
                .table_id(self.table())
                .kind(RouteType::Local)
                .output_interface(lo)
                .build(),
        })
    }
}

/// Returns false if the kernel answers that the route or rule exists already.
fn false_if_exists(outcome: Result<(), rtnetlink::Error>) -> Result<bool, rtnetlink::Error> {
    match outcome {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -libc::EEXIST => {
            Ok(false)
        }
        outcome => outcome.map(|()| true),
    }
}
