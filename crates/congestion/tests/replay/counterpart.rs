// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mapping of Linux's congestion controls to ours: parameters for the same behaviour, and names of the private
//! state.

/// A congestion control of Linux, and the one here that does the same.
pub(crate) struct Counterpart {
    /// Linux's name.
    pub(crate) control: &'static str,
    /// Name here.
    pub(crate) algorithm: &'static str,
    /// Name of the struct of the state.
    pub(crate) layout: &'static str,
    /// Parameters for Linux's behaviour, where the defaults differ from it.
    pub(crate) linux: &'static [(&'static str, u32)],
    /// Members of the private state that have a column in the vectors.
    pub(crate) members: &'static [Member],
}

/// A number of the private state.
pub(crate) struct Member {
    /// Column of the vector.
    pub(crate) column: &'static str,
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Whether it must be equal after each call; otherwise it is set only at the start of an excerpt.
    pub(crate) checked: bool,
}

/// Conversion of a column's number to a member's.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Same,
    /// A row, counted from 0 in Linux and from 1 here.
    FromOne,
    /// A flag: whether the number is not 0.
    Flag,
    /// Jiffies, converted to µs.
    Duration,
    /// A time of the kernel's clock in jiffies, modulo 2³², converted to µs.
    Timestamp,
}

/// A jiffy is a thousandth of a second in every vector.
pub(crate) const JIFFY_US: u64 = 1000;

impl Unit {
    /// Converts `value` at the time `now` in jiffies.
    pub(crate) fn convert(self, value: i64, now: u64) -> u64 {
        let value = u64::try_from(value).unwrap();
        match self {
            Self::Same => value,
            Self::FromOne => value + 1,
            Self::Flag => u64::from(value != 0),
            Self::Duration => value * JIFFY_US,
            Self::Timestamp => (now - (now.wrapping_sub(value) & 0xffff_ffff)) * JIFFY_US,
        }
    }
}

const fn checked(column: &'static str, name: &'static str, unit: Unit) -> Member {
    Member {
        column,
        name,
        unit,
        checked: true,
    }
}

const fn set_at_start(column: &'static str, name: &'static str, unit: Unit) -> Member {
    Member {
        column,
        name,
        unit,
        checked: false,
    }
}

pub(crate) const COUNTERPARTS: &[Counterpart] = &[
    // TRC-TCP has Reno's windows. It differs only in the times at which it sends.
    Counterpart {
        control: "reno",
        algorithm: "trc",
        layout: "trc",
        linux: &[],
        members: &[],
    },
    Counterpart {
        control: "scalable",
        algorithm: "scalable",
        layout: "scalable",
        linux: &[],
        members: &[],
    },
    Counterpart {
        control: "highspeed",
        algorithm: "hstcp",
        layout: "hstcp",
        linux: &[("linux_table", 1), ("count_acks", 1)],
        members: &[checked("ai", "a", Unit::FromOne)],
    },
    Counterpart {
        control: "htcp",
        algorithm: "htcp",
        layout: "htcp",
        linux: &[("jiffy_us", 1000)],
        members: &[
            checked("alpha", "alpha", Unit::Same),
            checked("beta", "beta", Unit::Same),
            checked("modeswitch", "adaptive", Unit::Same),
            checked("pkts_acked", "pkts_acked", Unit::Same),
            checked("packetcount", "counted", Unit::Same),
            checked("min_rtt", "min_rtt", Unit::Duration),
            checked("max_rtt", "max_rtt", Unit::Duration),
            checked("last_cong", "last_cong", Unit::Timestamp),
            checked("undo_last_cong", "congested", Unit::Flag),
            set_at_start("undo_last_cong", "undo_last_cong", Unit::Timestamp),
            set_at_start("undo_max_rtt", "undo_max_rtt", Unit::Duration),
            set_at_start("undo_old_max_b", "undo_old_max_rate", Unit::Same),
            checked("max_b", "max_rate", Unit::Same),
            checked("old_max_b", "old_max_rate", Unit::Same),
            checked("b_i", "rate", Unit::Same),
            checked("lasttime", "counted_since", Unit::Timestamp),
        ],
    },
    Counterpart {
        control: "bic",
        algorithm: "bic_linux",
        layout: "bic",
        linux: &[],
        members: &[
            checked("ca_cnt", "cnt", Unit::Same),
            checked("last_max_cwnd", "last_max", Unit::Same),
            checked("last_cwnd", "cnt_cwnd", Unit::Same),
            checked("last_time", "cnt_us", Unit::Timestamp),
            checked("delayed_ack", "delayed_ack", Unit::Same),
        ],
    },
];
