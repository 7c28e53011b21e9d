// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long packets may be on their way (DPLPMTUD, RFC 8899): short ones until longer ones have proved to pass.
//!
//! A packet that was sent keeps its bytes whatever becomes of it, so data itself must not probe: one that is too long
//! would be lost for ever. What probes is a request to open the connection once more, with nothing behind it up to the length
//! in question. libudt answers that, too, with a cookie of 0; ours repeats the probe's.

use longhaul_units::Time;

/// Bytes of UDP payload that pass wherever IPv6 does (1280, RFC 8200 §5, without 48 of headers).
const BASE_LEN: usize = 1232;

/// What paths carry of UDP: in tunnels, over PPPoE (1492; 1454 in Japan), VXLAN (1450) and WireGuard (1420), on Ethernet and with
/// jumbo frames, in packets of IPv4 and of IPv6.
const PLATEAUS: [usize; 16] = [
    1252, 1292, 1332, 1352, 1372, 1392, 1402, 1422, 1432, 1444, 1452, 1464, 1472, 4052, 8952, 8972,
];

/// A probe that is lost so often is too long (RFC 8899 §5.1.2, MAX_PROBES).
const PROBES_MAX: u32 = 3;

/// How long an answer is waited for, at least.
const REPLY_TIMEOUT_MIN: Time = Time::from_millis(100);

/// From the end of a search to the next: paths change (RFC 8899 §5.1.1 has 10 minutes, and waits for losses where a path
/// became narrower; here they are cut instead, and nothing is lost).
const RAISE_INTERVAL: Time = Time::from_secs(60);

#[derive(Debug)]
pub(crate) struct PathMtu {
    /// Bytes of a datagram, ascending, up to what was agreed on.
    sizes: Vec<usize>,
    /// The one that packets have.
    current: usize,
    /// Of this search: one that passes, and the first that does not.
    low: usize,
    high: usize,
    /// Probes of the present candidate, and when its answer is late.
    probes_sent: u32,
    next_at: Time,
}

impl PathMtu {
    /// For datagrams of at most `max` bytes, which are probed from a moment on.
    pub(crate) fn new(max: usize, from: Time) -> Self {
        let rungs = [BASE_LEN].into_iter().chain(PLATEAUS);
        let mut sizes: Vec<_> = rungs.filter(|size| *size < max).collect();
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

    /// Bytes of a datagram that passes.
    pub(crate) fn datagram_max(&self) -> usize {
        self.sizes[self.current]
    }

    /// When there is something to do; never if short packets were agreed on.
    pub(crate) fn deadline(&self) -> Option<Time> {
        (self.sizes.len() > 1).then_some(self.next_at)
    }

    /// The length of a probe that is to go now, whose answer takes no longer than `long`.
    pub(crate) fn next_probe(&mut self, now: Time, long: Time) -> Option<usize> {
        self.deadline().filter(|due| *due <= now)?;
        if self.probes_sent == PROBES_MAX {
            self.reject_candidate();
        }
        let Some(rung) = self.candidate() else {
            self.restart_search(now + RAISE_INTERVAL);
            return None;
        };
        self.probes_sent += 1;
        self.next_at = now + long.max(REPLY_TIMEOUT_MIN);
        Some(self.sizes[rung])
    }

    /// A probe was answered, with this in the place of a cookie; whether that repeats the probe's, which UDT4 does not.
    pub(crate) fn on_reply(&mut self, cookie: u32, now: Time) -> bool {
        let probed = self.candidate().filter(|_| self.probes_sent > 0);
        let is_it = |rung: &usize| cookie == 0 || cookie as usize == self.sizes[*rung];
        let Some(rung) = probed.filter(is_it) else {
            return false;
        };
        self.low = rung;
        self.current = self.current.max(rung);
        (self.probes_sent, self.next_at) = (0, now);
        cookie != 0
    }

    /// Nothing arrives any more, maybe because it is too long.
    pub(crate) fn reset(&mut self, now: Time) {
        self.current = 0;
        self.restart_search(now);
    }

    fn restart_search(&mut self, at: Time) {
        (self.low, self.high, self.probes_sent) = (0, self.sizes.len(), 0);
        self.next_at = at;
    }

    fn reject_candidate(&mut self) {
        let Some(rung) = self.candidate() else {
            return;
        };
        (self.high, self.probes_sent) = (rung, 0);
        if self.current >= rung {
            self.current = self.low;
        }
    }

    /// The longest first, for that is what most paths carry; then whatever halves what is left.
    fn candidate(&self) -> Option<usize> {
        let all = self.sizes.len();
        let middle = match self.high == all {
            true => all - 1,
            false => (self.low + self.high) / 2,
        };
        (self.high - self.low > 1).then_some(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Time = Time::from_millis(200);

    /// Lets the path carry so much for so long; the probes that there were.
    fn run_search(mtu: &mut PathMtu, carries: usize, from: Time, time: Time) -> u32 {
        let (mut now, mut probes) = (from, 0);
        while now < from + time {
            if let Some(size) = mtu.next_probe(now, LONG) {
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
    fn what_passes_is_found_whatever_it_is() {
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
    fn a_path_that_changes_is_followed() {
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
    fn only_an_answer_to_the_probe_under_way_counts() {
        let mut mtu = PathMtu::new(1472, Time::ZERO);
        assert!(!mtu.on_reply(1472, Time::ZERO));
        assert_eq!(mtu.datagram_max(), 1232, "none is");
        assert_eq!(mtu.next_probe(Time::ZERO, LONG), Some(1472));
        assert!(!mtu.on_reply(0xdead_beef, LONG));
        assert_eq!(mtu.datagram_max(), 1232, "a listener's cookie");
        assert!(!mtu.on_reply(0, LONG));
        assert_eq!(mtu.datagram_max(), 1472, "libudt's");
    }

    #[test]
    fn short_packets_need_no_probe() {
        let mut mtu = PathMtu::new(548, Time::ZERO);
        assert_eq!((mtu.deadline(), mtu.datagram_max()), (None, 548));
        assert_eq!(mtu.next_probe(Time::from_secs(9), LONG), None);
    }
}
