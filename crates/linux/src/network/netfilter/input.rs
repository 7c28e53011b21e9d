// SPDX-License-Identifier: MIT OR Apache-2.0
//! INPUT chains of this host that drop what no rule accepts, as firewalls make them.

use super::{
    Family,
    marks::{Marks, TABLE_PREFIX},
    nft::{self, NftError},
};

/// Returns the chains of a family that drop what no rule accepts: by policy, or by a last rule without a condition. Each
/// is `FAMILY TABLE CHAIN`. None are returned if a rule names the mark of what is diverted to the listener on `port`, or
/// that of all listeners; port 0 is no certain one. Whether another rule accepts a packet depends on the packet. Chains
/// of iptables-legacy are not seen.
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
    let dropping = chains.into_iter().filter(Chain::drops);
    Ok(dropping.map(|chain| chain.name).collect())
}

/// Chain as nft lists it.
struct Chain<'a> {
    /// Family, table and chain.
    name: String,
    /// Type and policy, if the chain has a hook, and the rules.
    lines: Vec<&'a str>,
}

impl Chain<'_> {
    fn drops(&self) -> bool {
        let Some(hook) = self
            .lines
            .first()
            .filter(|line| line.contains(" hook input "))
        else {
            return false;
        };
        hook.contains("policy drop;") || self.lines.last().is_some_and(|rule| drops_all(rule))
    }
}

/// Whether a rule drops or rejects every packet.
fn drops_all(rule: &str) -> bool {
    let mut words = rule.split_whitespace();
    let mut first = words.next();
    if first == Some("counter") {
        // `packets N bytes N`
        first = words.nth(4);
    }
    matches!(first, Some("drop" | "reject"))
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
            let name = format!("{table} {}", name.trim_end_matches(" {"));
            let lines = Vec::new();
            chains.push(Chain { name, lines });
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
        let chains = chains(Family::Ip, listing);
        let dropping = chains.into_iter().filter(Chain::drops);
        dropping.map(|chain| chain.name).collect()
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
        assert_eq!(chain("ip6 t", "drop"), [""; 0]);
        assert_eq!(chain("bridge t", "drop"), [""; 0]);
        assert_eq!(chain("ip longhaul-1080", "drop"), [""; 0]);
    }
}
