// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of every congestion control, for any events of the connection and any parameters.

use longhaul_congestion::math::{Algorithm, Connection, algorithms};
use longhaul_tcpsim::congestion_control::{Ack, AckSample, CongestionControl, State, Window};
use longhaul_units::Time;
use proptest::{prelude::*, test_runner::TestRunner};

/// Delay-based controls: the window may shrink without a loss, and may stay constant before one.
const BY_DELAY: [&str; 1] = ["fast"];

/// The largest window of these tests. Linux's own clamp is larger, but windows between this and 2^32 are
/// never reached.
const LARGEST: u32 = 1 << 31;

/// Event of a connection.
#[derive(Debug, Clone, Copy)]
enum Event {
    Ack {
        acked: u32,
        rtt_us: Option<u32>,
        limited: bool,
    },
    Wait {
        us: u64,
    },
    Loss,
    TimeOut,
    Recovered,
    Undone,
}

fn event() -> impl Strategy<Value = Event> {
    let acked = prop_oneof![4 => 1..3_u32, 4 => 1..100_u32, 1 => 1..1_000_000_u32];
    let rtt_us = prop::option::weighted(0.9, prop_oneof![1..1000_u32, 10_000..500_000_u32]);
    let us = prop_oneof![
        1..1000_u64,
        1000..1_000_000_u64,
        1_000_000..10_000_000_000_u64
    ];
    prop_oneof![
        20 => (acked, rtt_us, prop::bool::weighted(0.9))
            .prop_map(|(acked, rtt_us, limited)| Event::Ack { acked, rtt_us, limited }),
        10 => us.prop_map(|us| Event::Wait { us }),
        2 => Just(Event::Loss),
        1 => Just(Event::TimeOut),
        4 => Just(Event::Recovered),
        1 => Just(Event::Undone),
    ]
}

fn window() -> impl Strategy<Value = Window> {
    let cwnd = || {
        prop_oneof![
            1..20_u32,
            1..10_000_u32,
            1..10_000_000_u32,
            LARGEST - 1000..=LARGEST
        ]
    };
    let ssthresh = prop_oneof![Just(0x7fff_ffff), cwnd().prop_map(|cwnd| cwnd.max(2))];
    (cwnd(), ssthresh).prop_map(|(cwnd, ssthresh)| Window {
        cwnd,
        cwnd_cnt: 0,
        ssthresh,
    })
}

/// Generates parameters: each its default half the time, else anywhere in its range.
fn parameters(algorithm: Algorithm) -> impl Strategy<Value = Vec<u32>> {
    algorithm
        .parameters()
        .map(|p| prop_oneof![Just(p.default), p.min..=p.max].boxed())
        .collect::<Vec<_>>()
}

/// A connection as in `tcp_input.c`, with checks at every step.
#[derive(Debug)]
struct Sender {
    algorithm: Algorithm,
    connection: Connection,
    window: Window,
    /// Window at the start of the current reduction.
    prior: Window,
    state: State,
    now: Time,
}

impl Sender {
    fn new(algorithm: Algorithm, values: &[u32], mut window: Window) -> Self {
        let (mut connection, now) = (algorithm.connection(values), Time::from_secs(1));
        connection.init(&mut window, now);
        Self {
            algorithm,
            connection,
            window,
            prior: window,
            state: State::Open,
            now,
        }
    }

    fn apply(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Ack {
                acked,
                rtt_us,
                limited,
            } => self.ack(acked, rtt_us, limited)?,
            Event::Wait { us } => self.now += Time::from_micros(us),
            Event::Loss if self.state == State::Open => self.reduce(State::Recovery)?,
            Event::TimeOut if self.state != State::Loss => self.time_out()?,
            Event::Recovered if self.state != State::Open => self.enter(State::Open),
            Event::Undone if self.state != State::Open => self.undo()?,
            _ => {}
        }
        prop_assert!(self.window.cwnd >= 1);
        Ok(())
    }

    fn enter(&mut self, state: State) {
        self.connection.set_state(&self.window, state, self.now);
        self.state = state;
    }

    fn ack(&mut self, acked: u32, rtt_us: Option<u32>, limited: bool) -> Result<(), TestCaseError> {
        let acked = acked.min(self.window.cwnd);
        let sample = AckSample {
            now: self.now,
            pkts_acked: acked,
            rtt: rtt_us.map(|us| Time::from_micros(u64::from(us))),
            in_flight: self.window.cwnd,
            state: self.state,
        };
        self.connection.pkts_acked(&self.window, &sample);
        // In Recovery the window follows the proportional rate reduction.
        if self.state == State::Recovery {
            return Ok(());
        }
        self.grow(&Ack {
            now: self.now,
            acked,
            in_flight: self.window.cwnd,
            cwnd_limited: limited,
        })
    }

    fn grow(&mut self, ack: &Ack) -> Result<(), TestCaseError> {
        let before = self.window;
        self.connection.cong_avoid(&mut self.window, ack);
        let after = self.window;
        prop_assert!(ack.cwnd_limited || after == before, "an unused window grew");
        prop_assert!(
            u64::from(after.cwnd) <= u64::from(before.cwnd) * 2 + u64::from(ack.acked),
            "{after:?}"
        );
        if !BY_DELAY.contains(&self.algorithm.name()) {
            prop_assert!(
                after.cwnd >= before.cwnd,
                "{before:?} shrank to {after:?} without a loss"
            );
        }
        if after.in_slow_start() {
            prop_assert!(
                after.cwnd <= before.cwnd.saturating_add(ack.acked),
                "{before:?} {after:?}"
            );
        }
        self.window.cwnd = after.cwnd.min(LARGEST);
        Ok(())
    }

    /// Applies `tcp_init_cwnd_reduction` and its result at once.
    fn reduce(&mut self, state: State) -> Result<(), TestCaseError> {
        self.prior = self.window;
        let ssthresh = self.connection.ssthresh(&self.window, self.now);
        prop_assert!(ssthresh >= 2);
        prop_assert!(
            ssthresh <= self.window.cwnd.max(2),
            "{ssthresh} after {:?}",
            self.window
        );
        self.enter(state);
        self.window = Window {
            cwnd: ssthresh,
            cwnd_cnt: 0,
            ssthresh,
        };
        Ok(())
    }

    /// Applies `tcp_enter_loss`: during a fast retransmit, ssthresh is set already.
    fn time_out(&mut self) -> Result<(), TestCaseError> {
        match self.state {
            State::Recovery => self.enter(State::Loss),
            _ => self.reduce(State::Loss)?,
        }
        self.window.cwnd = 1;
        self.window.cwnd_cnt = 0;
        Ok(())
    }

    fn undo(&mut self) -> Result<(), TestCaseError> {
        let cwnd = self
            .connection
            .undo_cwnd(&self.window, self.prior.cwnd, self.now);
        prop_assert!(
            cwnd >= self.prior.cwnd && cwnd >= self.window.cwnd,
            "{cwnd}"
        );
        prop_assert!(cwnd <= self.prior.cwnd.max(self.window.cwnd), "{cwnd}");
        self.window = Window {
            cwnd,
            ssthresh: self.window.ssthresh.max(self.prior.ssthresh),
            ..self.window
        };
        self.enter(State::Open);
        Ok(())
    }
}

fn life(algorithm: Algorithm) -> impl Strategy<Value = (Vec<u32>, Window, Vec<Event>)> {
    (
        parameters(algorithm),
        window(),
        prop::collection::vec(event(), 1..150),
    )
}

/// Runs a test for each algorithm, as the strategy depends on it.
fn each(test: impl Fn(Algorithm, Vec<u32>, Window, Vec<Event>) -> Result<(), TestCaseError>) {
    for algorithm in algorithms() {
        let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
        let result = runner.run(&life(algorithm), |(values, window, events)| {
            test(algorithm, values, window, events)
        });
        if let Err(failure) = result {
            panic!("{algorithm:?}: {failure}");
        }
    }
}

#[test]
fn windows_stay_within_bounds() {
    each(|algorithm, values, window, events| {
        let mut sender = Sender::new(algorithm, &values, window);
        events.into_iter().try_for_each(|event| sender.apply(event))
    });
}

/// The same events twice lead to the same state.
#[test]
fn is_deterministic() {
    each(|algorithm, values, window, events| {
        let live = || {
            let mut sender = Sender::new(algorithm, &values, window);
            let lived = events.iter().try_for_each(|event| sender.apply(*event));
            lived.map(|()| (sender.window, sender.connection.values()))
        };
        prop_assert_eq!(live()?, live()?);
        Ok(())
    });
}

/// In slow start, without losses and at a constant round trip, each ACKed packet adds one.
#[test]
fn slow_start_adds_a_packet_per_acked_packet() {
    for algorithm in algorithms() {
        let mut sender = Sender::new(algorithm, &[], Window::new(10));
        for _ in 0..100 {
            sender
                .apply(Event::Ack {
                    acked: 5,
                    rtt_us: Some(180_000),
                    limited: true,
                })
                .unwrap();
        }
        assert_eq!(sender.window.cwnd, 510, "{algorithm:?}");
    }
}

/// Half an hour without a loss at 2^31 packets must not wrap.
#[test]
fn the_largest_window_does_not_wrap() {
    for algorithm in algorithms() {
        let window = Window {
            cwnd: LARGEST,
            cwnd_cnt: 0,
            ssthresh: 2,
        };
        let mut sender = Sender::new(algorithm, &[], window);
        for _ in 0..1000 {
            sender.apply(Event::Wait { us: 2_000_000 }).unwrap();
            sender
                .apply(Event::Ack {
                    acked: 1 << 20,
                    rtt_us: Some(180_000),
                    limited: true,
                })
                .unwrap();
        }
        // FAST's own bound is a packet less.
        assert!(sender.window.cwnd >= LARGEST - 1, "{algorithm:?}");
        sender.apply(Event::Loss).unwrap();
        assert!(
            (LARGEST / 2 - 1..LARGEST).contains(&sender.window.cwnd),
            "{algorithm:?}"
        );
    }
}
