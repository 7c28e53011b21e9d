// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classes of HTB (`net/sched/sch_htb.c`): the rate at which each may send.

use super::{
    message::{TcMessage, attribute, handle_text, word},
    options::{RATE_WORDS, rate_bits},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A class of a queueing discipline that holds packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Class {
    /// Identifier as tc prints it, `1:10`.
    pub id: String,
    /// Maximum rate with all that it may borrow, bits a second.
    pub rate_bits: u64,
}

/// Maximum depth of classes (TC_HTB_MAXDEPTH).
const DEPTH_MAX: u32 = 8;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;

/// Handle, parent, rate and ceiling of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rates {
    parent: u32,
    rate_bits: u64,
    ceil_bits: u64,
}

/// Returns the class of packets that no filter classifies, and the slowest of the others.
pub(super) fn classes(qdisc: &TcMessage, all: &[TcMessage]) -> (Option<Class>, Option<Class>) {
    let same = |class: &&TcMessage| {
        class.interface == qdisc.interface && class.handle >> 16 == qdisc.handle >> 16
    };
    let classes = all.iter().filter(same);
    let rates: BTreeMap<u32, Rates> = classes
        .filter_map(|class| Some((class.handle, rates_of(class)?)))
        .collect();
    let is_leaf = |handle: &&u32| rates.values().all(|other| other.parent != **handle);
    let leaves: Vec<Class> = rates
        .keys()
        .filter(is_leaf)
        .map(|handle| Class {
            id: handle_text(*handle),
            rate_bits: rate_max(&rates, *handle, DEPTH_MAX),
        })
        .collect();
    let default = default_class(qdisc).map(handle_text);
    let (default, others): (Vec<Class>, Vec<Class>) = leaves
        .into_iter()
        .partition(|class| Some(&class.id) == default.as_ref());
    let slowest = others.into_iter().min_by_key(|class| class.rate_bits);
    (default.into_iter().next(), slowest)
}

/// Reads the default class from `struct tc_htb_glob`. Without one, packets pass at once.
fn default_class(qdisc: &TcMessage) -> Option<u32> {
    let minor = word(attribute(&qdisc.options, TCA_HTB_INIT)?, 2)?;
    (minor > 0).then_some(qdisc.handle & 0xffff_0000 | minor & 0xffff)
}

/// Reads `struct tc_htb_opt`: rate and ceiling, and those beyond 32 bits.
fn rates_of(class: &TcMessage) -> Option<Rates> {
    let options = &class.options;
    let parameters = attribute(options, TCA_HTB_PARMS)?;
    let bits = |words, large| rate_bits(word(parameters, words - 1), attribute(options, large));
    Some(Rates {
        parent: class.parent,
        rate_bits: bits(RATE_WORDS, TCA_HTB_RATE64)?,
        ceil_bits: bits(2 * RATE_WORDS, TCA_HTB_CEIL64)?,
    })
}

/// Returns the maximum rate of a class. Beyond its own rate it borrows from its parent, up to its ceiling.
fn rate_max(all: &BTreeMap<u32, Rates>, handle: u32, depth: u32) -> u64 {
    let Some(class) = all.get(&handle).filter(|_| depth > 0) else {
        return u64::MAX;
    };
    let borrowed = rate_max(all, class.parent, depth - 1);
    class.rate_bits.max(class.ceil_bits.min(borrowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(kind: u16, words: &[u32]) -> Vec<u8> {
        let length = (4 + words.len() * 4) as u16;
        let head = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        let body = words.iter().flat_map(|word| word.to_ne_bytes());
        head.into_iter().chain(body).collect()
    }

    /// `rate` and `ceil` are in bytes a second.
    fn class(handle: u32, parent: u32, rate: u32, ceil: u32) -> TcMessage {
        TcMessage {
            interface: 2,
            handle,
            parent,
            options: with(TCA_HTB_PARMS, &[0, 0, rate, 0, 0, ceil, 0, 0, 0, 0, 0]),
            ..TcMessage::default()
        }
    }

    fn htb(default: u32) -> TcMessage {
        TcMessage {
            interface: 2,
            handle: 0x1_0000,
            kind: "htb".to_owned(),
            options: with(TCA_HTB_INIT, &[0, 10, default, 0, 0]),
            ..TcMessage::default()
        }
    }

    #[test]
    fn class_borrows_up_to_ceilings_of_all_parents() {
        let all = [
            class(0x1_0001, 0x1_0000, 100, 500),
            class(0x1_0010, 0x1_0001, 50, 1000),
            class(0x1_0020, 0x1_0001, 700, 700),
            class(0x2_0010, 0x2_0000, 1, 1),
        ];
        let (default, slowest) = classes(&htb(0x10), &all);
        let class = |id: &str, rate_bits| {
            let id = id.to_owned();
            Some(Class { id, rate_bits })
        };
        assert_eq!(default, class("1:10", 4000));
        assert_eq!(slowest, class("1:20", 5600));
    }

    #[test]
    fn no_default_class_limits_nothing() {
        let all = [class(0x1_0010, 0x1_0000, 50, 60)];
        let (default, slowest) = classes(&htb(0), &all);
        assert_eq!(default, None);
        assert_eq!(slowest.unwrap().rate_bits, 480);
        assert_eq!(classes(&htb(0x99), &all).0, None);
        assert_eq!(classes(&htb(0x10), &all).0.unwrap().id, "1:10");
    }

    #[test]
    fn reads_default_class_in_hexadecimal() {
        assert_eq!(default_class(&htb(0x30)), Some(0x1_0030));
    }
}
