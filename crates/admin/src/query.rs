// SPDX-License-Identifier: MIT OR Apache-2.0
//! Query of `/api/v1/connections`.

use super::record::{Connection, Connections, LegState, Snapshot, Sort};
use std::cmp::Reverse;

/// Number and order of the requested connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) limit: usize,
    pub(super) sort: Sort,
}

/// Maximum connections in one response, about 1 KB each.
const LIMIT_MAX: usize = 1000;
const LIMIT_DEFAULT: usize = 50;

impl Query {
    /// Parses a query; unknown keys are errors.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut query = Self {
            limit: LIMIT_DEFAULT,
            sort: Sort::default(),
        };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("limit", value)) => query.limit = limit(value)?,
                Some(("sort", value)) => query.sort = sort(value)?,
                _ => return Err("expected limit=N or sort=rate|bytes|age|retransmits".to_owned()),
            }
        }
        Ok(query)
    }

    /// Returns the first connections in the requested order.
    pub(super) fn select(self, snapshot: &Snapshot) -> Connections {
        let mut all: Vec<_> = snapshot.connections.iter().collect();
        match self.sort {
            Sort::Rate => all.sort_by(|a, b| rate(b).total_cmp(&rate(a))),
            Sort::Bytes => all.sort_by_key(|c| Reverse(c.bytes_up + c.bytes_down)),
            Sort::Age => all.sort_by(|a, b| b.age_s.total_cmp(&a.age_s)),
            Sort::Retransmits => all.sort_by_key(|c| Reverse(retransmits(c))),
        }
        Connections {
            time: snapshot.time,
            total: all.len(),
            sort: self.sort,
            connections: all.into_iter().take(self.limit).cloned().collect(),
        }
    }
}

fn rate(connection: &Connection) -> f64 {
    connection.bytes_up_per_s + connection.bytes_down_per_s
}

fn retransmits(connection: &Connection) -> u64 {
    let legs = [&connection.downstream, &connection.upstream];
    let legs = legs.into_iter().flatten();
    legs.map(LegState::retransmits).sum()
}

fn limit(value: &str) -> Result<usize, String> {
    let limit = value
        .parse()
        .ok()
        .filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| format!("limit: expected 1 to {LIMIT_MAX}"))
}

fn sort(value: &str) -> Result<Sort, String> {
    match value {
        "rate" => Ok(Sort::Rate),
        "bytes" => Ok(Sort::Bytes),
        "age" => Ok(Sort::Age),
        "retransmits" => Ok(Sort::Retransmits),
        _ => Err("sort: expected rate, bytes, age or retransmits".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_invalid_queries() {
        for (text, word) in [
            ("limit=0", "1 to 1000"),
            ("limit=1001", "1 to 1000"),
            ("limit=-1", "1 to 1000"),
            ("sort=name", "retransmits"),
            ("limits=3", "limit=N"),
            ("limit", "limit=N"),
        ] {
            assert!(Query::parse(text).unwrap_err().contains(word), "{text}");
        }
        let query = Query::parse("limit=7&sort=age").unwrap();
        assert_eq!((query.limit, query.sort), (7, Sort::Age));
    }

    fn connection(id: u64, age_s: f64, bytes_up: u64, rate: f64) -> Connection {
        Connection {
            id,
            listener: "web".into(),
            kind: "http".into(),
            client: ([127, 0, 0, 1], 1).into(),
            destination: None,
            next_hop: None,
            peer: None,
            age_s,
            mode: None,
            bytes_up,
            bytes_down: 0,
            bytes_up_per_s: 0.0,
            bytes_down_per_s: rate,
            downstream: None,
            upstream: None,
        }
    }

    #[test]
    fn sorts_and_limits_connections() {
        let snapshot = Snapshot {
            time: jiff::Timestamp::UNIX_EPOCH,
            connections: vec![
                connection(0, 5.0, 10, 1.0),
                connection(1, 9.0, 30, 2.0),
                connection(2, 1.0, 20, 3.0),
            ],
            legs: Vec::new(),
        };
        for (sort, first) in [("rate", 2), ("bytes", 1), ("age", 1)] {
            let query = Query::parse(&format!("sort={sort}&limit=2")).unwrap();
            let answer = query.select(&snapshot);
            assert_eq!((answer.total, answer.connections.len()), (3, 2));
            assert_eq!(answer.connections[0].id, first, "{sort}");
        }
    }
}
