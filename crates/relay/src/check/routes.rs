// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check for unreachable routes, which earlier routes cover completely. A route is divided into
//! listener, client network, destination and port range; one earlier route must cover each part.

use crate::config::{
    Config,
    location::{Finding, Table},
    policy::{Rule, any_or_empty},
};
use longhaul_protocol::networks::{Ports, Prefix, Target};
use std::{collections::BTreeSet, ops::RangeInclusive};

pub(crate) fn find(config: &Config) -> Vec<Finding> {
    let names: Vec<&str> = config.listeners.iter().map(|l| l.name.as_str()).collect();
    let rules = &config.policy.rules;
    let unreachable = |n: &usize| is_covered(&rules[*n], &rules[..*n], &names);
    let numbers = (0..rules.len()).filter(unreachable);
    let text = "it is never reached: earlier routes match all that it would";
    let finding = |n| Finding::named(Table::Route(n), None, text);
    numbers.map(finding).collect()
}

/// Most parts of one route; a route with more is not checked.
const PARTS_MAX: usize = 100_000;

fn is_covered(rule: &Rule, earlier: &[Rule], all: &[&str]) -> bool {
    let listeners = if rule.listeners.is_empty() {
        all.to_vec()
    } else {
        rule.listeners.iter().map(String::as_str).collect()
    };
    let (from, to) = (clients(rule), destinations(rule));
    let ports = split_at_bounds(&ranges(&rule.ports), earlier);
    let parts = listeners.len() * from.len() * to.len() * ports.len();
    let covered =
        |listener: &str, from: Prefix, to: Option<&Target>, ports: &RangeInclusive<u16>| {
            earlier.iter().any(|earlier| {
                earlier.applies_to(listener)
                    && any_or_empty(&earlier.from, |prefix| prefix.covers(from))
                    && any_or_empty(&earlier.to, |target| to.is_some_and(|to| target.covers(to)))
                    && any_or_empty(&earlier.ports, |range| range.covers(ports))
            })
        };
    parts > 0
        && parts <= PARTS_MAX
        && listeners.iter().all(|listener| {
            from.iter().all(|from| {
                let all_ports =
                    |to: &Option<&Target>| ports.iter().all(|p| covered(listener, *from, *to, p));
                to.iter().all(all_ports)
            })
        })
}

fn clients(rule: &Rule) -> Vec<Prefix> {
    if rule.from.is_empty() {
        Prefix::EVERYTHING.to_vec()
    } else {
        rule.from.clone()
    }
}

/// Destinations of a rule; `None` is any destination.
fn destinations(rule: &Rule) -> Vec<Option<&Target>> {
    if rule.to.is_empty() {
        vec![None]
    } else {
        rule.to.iter().map(Some).collect()
    }
}

const ALL_PORTS: RangeInclusive<u16> = 0..=u16::MAX;

fn ranges(ports: &[Ports]) -> Vec<RangeInclusive<u16>> {
    if ports.is_empty() {
        vec![ALL_PORTS]
    } else {
        ports.iter().map(Ports::range).collect()
    }
}

/// Splits port ranges at the bounds of earlier routes, several of which may cover a range together.
fn split_at_bounds(ranges: &[RangeInclusive<u16>], earlier: &[Rule]) -> Vec<RangeInclusive<u16>> {
    let start = |range: &RangeInclusive<u16>| u32::from(*range.start());
    let behind = |range: &RangeInclusive<u16>| u32::from(*range.end()) + 1;
    let bounds = earlier.iter().flat_map(|rule| &rule.ports);
    let bounds = bounds.map(Ports::range);
    let bounds: BTreeSet<u32> = bounds
        .flat_map(|range| [start(&range), behind(&range)])
        .collect();
    let parts = |range: &RangeInclusive<u16>| {
        let inside = bounds.range(start(range) + 1..behind(range)).copied();
        let starts = [start(range)].into_iter().chain(inside.clone());
        let ends = inside.chain([behind(range)]);
        let part = |(start, end): (u32, u32)| start as u16..=(end - 1) as u16;
        starts.zip(ends).map(part).collect::<Vec<_>>()
    };
    ranges.iter().flat_map(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers, from 1, of unreachable routes.
    fn unreachable(routes: &str) -> Vec<usize> {
        let listeners = "[[listener]]\nname = 'a'\nkind = 'socks5'\naddress = '127.0.0.1:1'\n\
                         [[listener]]\nname = 'b'\nkind = 'http'\naddress = '127.0.0.1:2'\n";
        let settings = toml::from_str(&format!("{listeners}{routes}")).unwrap();
        let found = find(&Config::new(&settings).unwrap());
        let number = |finding: Finding| match finding.table {
            Table::Route(n) => n + 1,
            table => panic!("{table}"),
        };
        found.into_iter().map(number).collect()
    }

    fn routes(conditions: &[&str]) -> String {
        let route = |text: &&str| format!("[[route]]\n{}\n", text.replace(" & ", "\n"));
        conditions.iter().map(route).collect()
    }

    #[test]
    fn finds_unreachable_routes() {
        for (conditions, want) in [
            (&["", "to = ['10.0.0.0/8']"][..], &[2][..]),
            (&["deny = true", ""], &[2]),
            (&["to = ['10.0.0.0/8']", "to = ['10.1.0.0/16']"], &[2]),
            (
                &[
                    "to = ['*.example.org']",
                    "to = ['a.example.org', '*.b.example.org']",
                ],
                &[2],
            ),
            (&["to = ['*.example.org']", "to = ['example.org']"], &[]),
            (&["to = ['0.0.0.0/0', '::/0']", "to = ['example.org']"], &[]),
            (&["to = ['0.0.0.0/0', '::/0']", ""], &[]),
            (&["from = ['0.0.0.0/0', '::/0']", ""], &[2]),
            (&["from = ['0.0.0.0/0']", ""], &[]),
            (
                &["listener = ['a']", "listener = ['b']", "ports = [80]"],
                &[3],
            ),
            (&["listener = ['a']", "ports = [80]"], &[]),
            (
                &[
                    "ports = ['1-100']",
                    "ports = ['101-200']",
                    "ports = ['50-150']",
                ],
                &[3],
            ),
            (
                &[
                    "ports = ['1-100']",
                    "ports = ['102-200']",
                    "ports = ['50-150']",
                ],
                &[],
            ),
            (&["ports = [80] & to = ['10.0.0.0/8']", "ports = [80]"], &[]),
            (
                &[
                    "ports = [80]",
                    "ports = [80] & to = ['10.0.0.0/8'] & listener = ['a']",
                ],
                &[2],
            ),
            (
                &["to = ['10.0.0.0/8']", "to = ['10.1.0.0/16', '11.0.0.0/8']"],
                &[],
            ),
            (
                &[
                    "to = ['10.0.0.0/8']",
                    "to = ['11.0.0.0/8']",
                    "to = ['10.1.0.0/16', '11.1.0.0/16']",
                ],
                &[3],
            ),
        ] {
            assert_eq!(unreachable(&routes(conditions)), want, "{conditions:?}");
        }
    }
}
