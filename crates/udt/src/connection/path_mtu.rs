// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path MTU discovery (DPLPMTUD, RFC 8899): packets are short until probes show that longer ones pass.
//!
//! A sent packet keeps its bytes when it is retransmitted, so data must not probe: a packet that is too long would be
//! lost for ever. A probe is a repeated handshake request, padded to the length in question. libudt answers it with a
//! cookie of 0; ours returns the probe's cookie.

use longhaul_units::Time;

/// UDP payload that passes wherever IPv6 does, in bytes (1280, RFC 8200 §5, without 48 of headers).
const BASE_LEN: usize = 1232;

/// UDP payloads that common paths carry, in bytes: tunnels, PPPoE (1492; 1454 in Japan), VXLAN (1450), WireGuard
/// (1420), Ethernet and jumbo frames, with IPv4 and with IPv6.
const PLATEAUS: [usize; 16] = [
    1252, 1292, 1332, 1352, 1372, 1392, 1402, 1422, 1432, 1444, 1452, 1464, 1472, 4052, 8952, 8972,
];

/// Lost probes of one length after which it counts as too long (RFC 8899 §5.1.2, MAX_PROBES).
const PROBES_MAX: u32 = 3;

/// Minimum time to wait for the reply to a probe.
const REPLY_TIMEOUT_MIN: Time = Time::from_millis(100);

/// Time from the end of a search to the next, because paths change. (RFC 8899 §5.1.1 has 10 minutes, and waits for
/// losses where a path became narrower. Here routers fragment such packets, and none are lost.)
const RAISE_INTERVAL: Time = Time::from_secs(60);

/// Search for the longest datagram that passes, and its result so far.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// Datagram lengths in bytes, ascending, up to the negotiated one.
    sizes: Vec<usize>,
    /// Index of the length that packets have.
    current: usize,
    /// Index of a length that passes: the lower bound of the search.
    low: usize,
    /// Index of the shortest length that does not pass: the upper bound of the search.
    high: usize,
    /// Number of probes of the current candidate that were sent.
    probes_sent: u32,
    /// Time of the next probe, or time at which the reply to the last one is late.
    next_at: Time,
}

impl PathMtu {
    /// Creates the search for datagrams of at most `max` bytes, with the first probe at `from`.
    pub(crate) fn new(max: usize, from: Time) -> Self {
        let lengths = [BASE_LEN].into_iter().chain(PLATEAUS);
        let mut sizes: Vec<_> = lengths.filter(|size| *size < max).collect();
        sizes.push(max);
        Self {
            current: 0,
            low: 0,
            high: sizes.len(),
            sizes,
            probes_sent: 0,
            next_at: from,
        }
    }

    /// Returns the maximum length of a datagram that passes, in bytes.
    pub(crate) fn datagram_max(&self) -> usize {
        self.sizes[self.current]
    }

    /// Returns the time of the next probe or timeout; `None` if no length but the shortest was negotiated.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (self.sizes.len() > 1).then_some(self.next_at)
    }

    /// Returns the length of the probe to send now. A reply takes at most `rtt_bound`.
    pub(crate) fn next_probe(&mut self, now: Time, rtt_bound: Time) -> Option<usize> {
        self.deadline().filter(|due| *due <= now)?;
        if self.probes_sent == PROBES_MAX {
            self.reject_candidate();
        }
        let Some(index) = self.candidate() else {
            self.restart_search(now + RAISE_INTERVAL);
            return None;
        };
        self.probes_sent += 1;
        self.next_at = now + rtt_bound.max(REPLY_TIMEOUT_MIN);
        Some(self.sizes[index])
    }

    /// Handles a reply to a probe, with this value as its cookie. Returns whether it repeats the probe's cookie,
    /// which UDT4 does not.
    pub(crate) fn on_reply(&mut self, cookie: u32, now: Time) -> bool {
        let candidate = self.candidate().filter(|_| self.probes_sent > 0);
        let matches = |index: &usize| cookie == 0 || cookie as usize == self.sizes[*index];
        let Some(index) = candidate.filter(matches) else {
            return false;
        };
        self.low = index;
        self.current = self.current.max(index);
        (self.probes_sent, self.next_at) = (0, now);
        cookie != 0
    }

    /// Returns to the shortest length, because no packets arrive any more, and restarts the search.
    pub(crate) fn reset(&mut self, now: Time) {
        self.current = 0;
        self.restart_search(now);
    }

    fn restart_search(&mut self, at: Time) {
        (self.low, self.high, self.probes_sent) = (0, self.sizes.len(), 0);
        self.next_at = at;
    }

    fn reject_candidate(&mut self) {
        let Some(index) = self.candidate() else {
            return;
        };
        (self.high, self.probes_sent) = (index, 0);
        if self.current >= index {
            self.current = self.low;
        }
    }

    /// Returns the index to probe next: the longest first, which most paths carry, then the middle of the bounds.
    fn candidate(&self) -> Option<usize> {
        let all = self.sizes.len();
        let middle = if self.high == all {
            all - 1
        } else {
            (self.low + self.high) / 2
        };
        (self.high - self.low > 1).then_some(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_BOUND: Time = Time::from_millis(200);

    /// Runs the search for `time` on a path that carries `carries` bytes. Returns how many probes were sent.
    fn run_search(mtu: &mut PathMtu, carries: usize, from: Time, time: Time) -> u32 {
        let (mut now, mut probes) = (from, 0);
        while now < from + time {
            if let Some(size) = mtu.next_probe(now, RTT_BOUND) {
                probes += 1;
                if size <= carries {
                    assert!(mtu.on_reply(size as u32, now + Time::from_millis(50)));
                }
            }
            now += Time::from_millis(10);
        }
        probes
    }

    #[test]
    fn finds_the_longest_length_that_passes() {
        for (carries, found) in [
            (1472, 1472),
            (1471, 1464),
            (1372, 1372),
            (1300, 1292),
            (0, 1232),
        ] {
            let mut mtu = PathMtu::new(1472, Time::ZERO);
            assert_eq!(mtu.datagram_max(), 1232);
            let probes = run_search(&mut mtu, carries, Time::ZERO, Time::from_secs(20));
            assert_eq!(mtu.datagram_max(), found);
            assert!(probes <= 15, "{probes}");
        }
        let mut jumbo = PathMtu::new(8972, Time::ZERO);
        assert_eq!(
            run_search(&mut jumbo, 8972, Time::ZERO, Time::from_secs(20)),
            1
        );
        assert_eq!(jumbo.datagram_max(), 8972);
    }

    #[test]
    fn follows_a_path_that_changes() {
        let mut mtu = PathMtu::new(1472, Time::ZERO);
        let minutes = Time::from_secs(130);
        for (from, carries) in [(0, 1472), (200, 1372), (400, 1464)] {
            run_search(&mut mtu, carries, Time::from_secs(from), minutes);
            assert_eq!(mtu.datagram_max(), carries);
        }
        mtu.reset(Time::from_secs(600));
        assert_eq!(mtu.datagram_max(), 1232);
        run_search(&mut mtu, 1472, Time::from_secs(600), Time::from_secs(1));
        assert_eq!(mtu.datagram_max(), 1472);
    }

    #[test]
    fn ignores_replies_to_no_current_probe() {
        let mut mtu = PathMtu::new(1472, Time::ZERO);
        assert!(!mtu.on_reply(1472, Time::ZERO));
        assert_eq!(mtu.datagram_max(), 1232, "no probe was sent");
        assert_eq!(mtu.next_probe(Time::ZERO, RTT_BOUND), Some(1472));
        assert!(!mtu.on_reply(0xdead_beef, RTT_BOUND));
        assert_eq!(mtu.datagram_max(), 1232, "the cookie of a listener");
        assert!(!mtu.on_reply(0, RTT_BOUND));
        assert_eq!(mtu.datagram_max(), 1472, "the reply of libudt");
    }

    #[test]
    fn does_not_probe_short_packets() {
        let mut mtu = PathMtu::new(548, Time::ZERO);
        assert_eq!((mtu.deadline(), mtu.datagram_max()), (None, 548));
        assert_eq!(mtu.next_probe(Time::from_secs(9), RTT_BOUND), None);
    }
}
