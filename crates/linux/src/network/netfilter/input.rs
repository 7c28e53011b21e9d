// SPDX-License-Identifier: MIT OR Apache-2.0
//! INPUT chains of this host that drop what no rule accepts, as firewalls make them.

use super::{
    Family,
    marks::{Marks, TABLE_PREFIX},
    nft::{self, NftError},
};

/// Returns the chains of a family that drop or reject what no rule accepts, each as `FAMILY TABLE CHAIN`. They do so by
/// policy, or by a rule for all new TCP connections. That rule may be in a chain that all of them go through.
///
/// The result is empty if a rule names the mark of what is diverted to the listener on `port`, or that of all listeners.
/// With port 0, only the latter. Whether another rule accepts a packet depends on the packet. Chains of iptables-legacy
/// are not seen.
///
/// # Errors
///
/// nft is missing, or the right to list rules (CAP_NET_ADMIN).
pub fn dropping_chains(family: Family, port: u16) -> Result<Vec<String>, NftError> {
    let listing = nft::rules()?;
    let chains = chains(family, &listing);
    let accepts = [port, 0].map(|port| format!("{:#x}", Marks::of(port).diverted()));
    let names_mark = |line: &&str| accepts.iter().any(|mark| line.contains(mark));
    if chains.iter().flat_map(|chain| &chain.lines).any(names_mark) {
        return Ok(Vec::new());
    }
    Ok(dropping(&chains))
}

fn dropping(chains: &[Chain<'_>]) -> Vec<String> {
    let dropping = chains.iter().filter(|chain| chain.drops(chains));
    dropping.map(Chain::name).collect()
}

/// Most chains that are followed one from another. The kernel allows 16.
const JUMPS_MAX: usize = 16;

/// Chain as nft lists it.
struct Chain<'a> {
    /// Family and name.
    table: &'a str,
    name: &'a str,
    /// Type and policy, if the chain has a hook, and the rules.
    lines: Vec<&'a str>,
}

impl<'a> Chain<'a> {
    fn name(&self) -> String {
        format!("{} {}", self.table, self.name)
    }

    fn drops(&self, chains: &[Self]) -> bool {
        let Some(hook) = self
            .lines
            .first()
            .filter(|line| line.contains(" hook input "))
        else {
            return false;
        };
        hook.contains("policy drop;") || self.rules_drop(chains, JUMPS_MAX)
    }

    /// Whether a rule drops every new TCP connection that no rule before it accepts.
    fn rules_drop(&self, chains: &[Self], jumps: usize) -> bool {
        let Some(jumps) = jumps.checked_sub(1) else {
            return false;
        };
        let is_target = |chain: &&Self, name| chain.table == self.table && chain.name == name;
        self.lines
            .iter()
            .any(|rule| match verdict_for_new_connections(rule) {
                Some(Verdict::Drop) => true,
                Some(Verdict::Jump(name)) => {
                    let target = chains.iter().find(|chain| is_target(chain, name));
                    target.is_some_and(|chain| chain.rules_drop(chains, jumps))
                }
                None => false,
            })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict<'a> {
    /// Drop or reject.
    Drop,
    /// Jump or goto.
    Jump(&'a str),
}

/// Returns the verdict of a rule that matches the first SYN of every TCP connection.
fn verdict_for_new_connections(rule: &str) -> Option<Verdict<'_>> {
    let unquoted = rule.split('"').step_by(2);
    let words: Vec<&str> = unquoted.flat_map(str::split_whitespace).collect();
    let mut words = &words[..];
    loop {
        words = match words {
            ["counter", "packets", _, "bytes", _, rest @ ..]
            | ["meta", "l4proto", "tcp" | "6", rest @ ..]
            | ["ip", "protocol", "tcp" | "6", rest @ ..]
            | ["ip6", "nexthdr", "tcp" | "6", rest @ ..]
            | ["ct", "state", "new", rest @ ..] => rest,
            ["ct", "state", states, rest @ ..] if states.split(',').any(|state| state == "new") => {
                rest
            }
            ["ct", "state", "{", rest @ ..] => after_set_with("new", rest)?,
            ["log", rest @ ..] => after_log(rest),
            ["drop" | "reject", ..] => return Some(Verdict::Drop),
            ["jump" | "goto", name, ..] => return Some(Verdict::Jump(name)),
            _ => return None,
        }
    }
}

/// Returns what follows the set whose elements begin `words`, if it contains `element`.
fn after_set_with<'a, 'b>(element: &str, words: &'a [&'b str]) -> Option<&'a [&'b str]> {
    let end = words.iter().position(|word| *word == "}")?;
    let mut elements = words[..end].iter().map(|word| word.trim_end_matches(','));
    elements
        .any(|found| found == element)
        .then(|| &words[end + 1..])
}

/// Returns what follows the options of a log statement.
fn after_log<'a, 'b>(words: &'a [&'b str]) -> &'a [&'b str] {
    let is_next = |word: &&str| ["counter", "drop", "reject", "jump", "goto"].contains(word);
    let next = words.iter().position(is_next);
    &words[next.unwrap_or(words.len())..]
}

/// Returns the chains of a family in nft's listing, without those of relays.
fn chains(family: Family, listing: &str) -> Vec<Chain<'_>> {
    let (mut table, mut chains, mut is_chain) = ("", Vec::new(), false);
    for line in listing.lines() {
        let begin = line.strip_prefix("\tchain ");
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches(" {");
        } else if let Some(name) = begin.filter(|_| concerns(family, table)) {
            is_chain = true;
            let (name, lines) = (name.trim_end_matches(" {"), Vec::new());
            chains.push(Chain { table, name, lines });
        } else if line == "\t}" {
            is_chain = false;
        } else if let Some(chain) = chains.last_mut().filter(|_| is_chain) {
            chain.lines.push(line.trim());
        }
    }
    chains
}

/// Whether the table `FAMILY NAME` has rules of this host for packets of `family`.
fn concerns(family: Family, table: &str) -> bool {
    let (of, name) = table.split_once(' ').unwrap_or_default();
    (of == family.name() || of == "inet") && !name.starts_with(TABLE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropping(listing: &str) -> Vec<String> {
        super::dropping(&chains(Family::Ip, listing))
    }

    /// Chains as ufw (iptables-nft) and firewalld make them.
    #[test]
    fn policy_or_last_rule_drops_the_rest() {
        let listing = "table ip filter {\n\
            \tchain ufw-reject {\n\t\tcounter packets 0 bytes 0 reject\n\t}\n\
            \tchain INPUT {\n\t\ttype filter hook input priority filter; policy drop;\n\
            \t\tcounter packets 9 bytes 99 jump ufw-reject\n\t}\n\
            \tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n\
            table inet firewalld {\n\
            \tchain filter_INPUT {\n\t\ttype filter hook input priority filter + 10; policy accept;\n\
            \t\tct state { established, related } accept\n\t\treject with icmpx admin-prohibited\n\t}\n}\n";
        let want = ["ip filter INPUT", "inet firewalld filter_INPUT"];
        assert_eq!(dropping(listing), want);
    }

    /// As the last rule of many hand-made firewalls, and a chain that only rejects.
    #[test]
    fn rule_for_all_new_tcp_connections_drops_the_rest() {
        for rules in [
            "meta l4proto tcp counter packets 1 bytes 60 reject with tcp reset",
            "ip protocol tcp reject with tcp reset\n\t\tcounter packets 0 bytes 0 accept",
            "ct state new drop",
            "ct state invalid,new drop",
            "ct state { invalid, new } drop",
            "log prefix \"all accept \" level warn counter packets 0 bytes 0 drop",
            "counter packets 1 bytes 60 jump rest",
            "meta l4proto tcp goto rest",
        ] {
            let listing = format!(
                "table ip t {{\n\tchain rest {{\n\t\treject with icmp port-unreachable\n\t}}\n\
                 \tchain c {{\n\t\ttype filter hook input priority filter; policy accept;\n\
                 \t\t{rules}\n\t}}\n}}\n"
            );
            assert_eq!(dropping(&listing), ["ip t c"], "{rules}");
        }
    }

    #[test]
    fn other_chains_drop_nothing_more() {
        let chain = |table: &str, rules: &str| {
            let hook = "type filter hook input priority filter; policy accept;";
            dropping(&format!(
                "table {table} {{\n\tchain c {{\n\t\t{hook}\n\t\t{rules}\n\t}}\n}}\n"
            ))
        };
        assert_eq!(chain("ip t", "counter packets 1 bytes 2 drop"), ["ip t c"]);
        assert_eq!(chain("ip t", "tcp dport 25 drop"), [""; 0]);
        assert_eq!(chain("ip t", "meta l4proto udp drop"), [""; 0]);
        assert_eq!(chain("ip t", "ct state invalid drop"), [""; 0]);
        assert_eq!(
            chain("ip t", "ct state { invalid, untracked } drop"),
            [""; 0]
        );
        assert_eq!(chain("ip t", "log prefix \"drop\" accept"), [""; 0]);
        assert_eq!(chain("ip t", "iifname \"eth0\" reject"), [""; 0]);
        assert_eq!(chain("ip t", "jump elsewhere"), [""; 0]);
        assert_eq!(
            chain("ip t", "jump c"),
            [""; 0],
            "the kernel allows no loop"
        );
        assert_eq!(chain("ip6 t", "drop"), [""; 0]);
        assert_eq!(chain("bridge t", "drop"), [""; 0]);
        assert_eq!(chain("ip longhaul-1080", "drop"), [""; 0]);
    }
}
