// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters that drop what exceeds a rate (`net/sched/act_police.c`).

use super::{
    message::{TcMessage, attribute, word},
    options::rate_bits,
};

/// Number of actions that one filter may have (TCA_ACT_MAX_PRIO).
const ACTIONS_MAX: u16 = 32;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_POLICE_TBF: u16 = 1;
const TCA_POLICE_RATE64: u16 = 8;
/// Action on packets beyond the rate: drop (TC_ACT_SHOT).
const DROP: u32 = 2;

/// Returns the lowest rate beyond which a filter drops packets, in bits a second.
pub(super) fn rate(filter: &TcMessage) -> Option<u64> {
    let (actions, police) = attributes_of(&filter.kind)?;
    let actions = attribute(&filter.options, actions).unwrap_or_default();
    let listed = (1..=ACTIONS_MAX).filter_map(|number| police_options(attribute(actions, number)?));
    let own = police.and_then(|kind| attribute(&filter.options, kind));
    listed.chain(own).filter_map(drop_rate).min()
}

/// Returns the attributes of a classifier that hold actions, and a police of the old form.
fn attributes_of(classifier: &str) -> Option<(u16, Option<u16>)> {
    Some(match classifier {
        "u32" => (7, Some(6)),
        "basic" => (3, Some(4)),
        "fw" => (4, Some(2)),
        "bpf" => (1, Some(2)),
        "flower" => (3, None),
        "matchall" => (2, None),
        _ => return None,
    })
}

fn police_options(action: &[u8]) -> Option<&[u8]> {
    let is_police = attribute(action, TCA_ACT_KIND) == Some(b"police\0");
    is_police.then(|| attribute(action, TCA_ACT_OPTIONS))?
}

/// Reads `struct tc_police`: its second word is the action, its eighth the rate.
fn drop_rate(options: &[u8]) -> Option<u64> {
    let police = attribute(options, TCA_POLICE_TBF)?;
    let drops = word(police, 1) == Some(DROP);
    let rate = rate_bits(word(police, 7), attribute(options, TCA_POLICE_RATE64));
    rate.filter(|_| drops)
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    /// TCA_POLICE_TBF as tc sends it (iproute2 6.1, under strace) for `police rate 10mbit burst 20k drop`.
    fn police(action: u8) -> Vec<u8> {
        let mut attribute = vec![0x3c, 0, 1, 0, 0, 0, 0, 0, action, 0, 0, 0, 0, 0, 0, 0];
        attribute.extend([0, 0xe8, 3, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0xff, 0xff, 0, 0]);
        attribute.extend([0xd0, 0x12, 0x13, 0]);
        attribute.resize(0x3c, 0);
        attribute
    }

    fn nested(kind: u16, contents: &[u8]) -> Vec<u8> {
        let length = 4 + contents.len() as u16;
        let mut all = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        all.extend(contents);
        all.resize(all.len().next_multiple_of(4), 0);
        all
    }

    fn filter(kind: &str, options: Vec<u8>) -> TcMessage {
        TcMessage {
            kind: kind.to_owned(),
            options,
            ..TcMessage::default()
        }
    }

    #[test]
    fn reads_police_of_both_forms() {
        let old = filter("u32", nested(6, &police(2)));
        assert_eq!(rate(&old), Some(10_000_000));
        let action = [
            nested(TCA_ACT_KIND, b"police\0"),
            nested(TCA_ACT_OPTIONS | 0x8000, &police(2)),
        ];
        let new = filter("matchall", nested(2, &nested(1, &action.concat())));
        assert_eq!(rate(&new), Some(10_000_000));
    }

    #[test]
    fn other_actions_and_filters_limit_nothing() {
        let passes = filter("u32", nested(6, &police(3)));
        assert_eq!(rate(&passes), None);
        let action = nested(TCA_ACT_KIND, b"mirred\0");
        let mirrors = filter("u32", nested(7, &nested(1, &action)));
        assert_eq!(rate(&mirrors), None);
        assert_eq!(rate(&filter("route", police(2))), None);
    }
}
