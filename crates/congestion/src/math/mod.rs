// SPDX-License-Identifier: MIT OR Apache-2.0
//! The congestion controls' arithmetic on the host: the C code that also runs in the kernel.
#![expect(unsafe_code, reason = "the arithmetic is C")]

pub mod parameters;
pub mod simulated;

use longhaul_tcpsim::congestion_control::{Ack, AckSample, CongestionControl, State, Window};
use longhaul_units::{BitRate, Time};
use std::{
    ffi::{CStr, c_char},
    fmt,
};

/// `CC_STATE_BYTES` in cc.h, as 64-bit words.
pub const STATE_WORDS: usize = 13;

/// A congestion control of this crate.
#[derive(Clone, Copy)]
pub struct Algorithm(&'static RawAlgorithm);

/// A parameter, set when the algorithm is loaded, or for one socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Name in `--param NAME=VALUE`.
    pub name: &'static str,
    /// Unit; empty for a number without one.
    pub unit: &'static str,
    /// Description of its effect.
    pub description: &'static str,
    /// Default value.
    pub default: u32,
    /// Smallest allowed value.
    pub min: u32,
    /// Largest allowed value.
    pub max: u32,
}

/// A displayed number of a connection's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name in the header.
    pub name: &'static str,
    /// Unit; empty for a number without one.
    pub unit: &'static str,
    /// Description.
    pub description: &'static str,
    /// The displayed number is the stored one, divided by this.
    pub divisor: u32,
}

/// Returns all algorithms.
pub fn algorithms() -> impl Iterator<Item = Algorithm> {
    // SAFETY: the array is constant and ends with an entry without a name.
    unsafe { entries(longhaul_cc_algorithms.as_ptr(), |raw| raw.name) }.map(Algorithm)
}

/// Returns the algorithm of this name, with or without `lh_`.
#[must_use]
pub fn algorithm(name: &str) -> Option<Algorithm> {
    let name = name.strip_prefix("lh_").unwrap_or(name);
    algorithms().find(|algorithm| algorithm.name() == name)
}

impl Algorithm {
    /// Returns its name in the papers, such as `scalable`.
    #[must_use]
    pub fn name(self) -> &'static str {
        // SAFETY: an entry's strings are literals.
        unsafe { text(self.0.name) }
    }

    /// Returns its name in the kernel, such as `lh_scalable`.
    #[must_use]
    pub fn system_name(self) -> String {
        format!("lh_{}", self.name())
    }

    /// Returns the parameters.
    pub fn parameters(self) -> impl Iterator<Item = Parameter> {
        // SAFETY: the array ends with an entry without a name, and its strings are literals.
        unsafe { entries(self.0.parameters, |raw| raw.name) }.map(|raw| unsafe {
            Parameter {
                name: text(raw.name),
                unit: text(raw.unit),
                description: text(raw.about),
                default: raw.initial,
                min: raw.least,
                max: raw.most,
            }
        })
    }

    /// Returns the displayed fields of a connection.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        // SAFETY: as in `parameters`.
        unsafe { entries(self.0.fields, |raw| raw.name) }.map(|raw| unsafe {
            Field {
                name: text(raw.name),
                unit: text(raw.unit),
                description: text(raw.about),
                divisor: raw.divisor,
            }
        })
    }

    /// Returns the values of [`Algorithm::fields`], in their order, as stored in a connection's
    /// `icsk_ca_priv`.
    #[must_use]
    pub fn values(self, state: &[u64; STATE_WORDS]) -> Vec<i64> {
        let mut values = vec![0; self.fields().count()];
        // SAFETY: `read` writes one value for each field, from a state as large as it may be.
        unsafe { (self.0.read)(state.as_ptr().cast(), values.as_mut_ptr()) };
        values
    }

    /// Returns the parameters at the start of a connection's `icsk_ca_priv`, in their order.
    #[must_use]
    pub fn connection_parameters(self, state: &[u64; STATE_WORDS]) -> Vec<u32> {
        let bytes = state.iter().flat_map(|word| word.to_ne_bytes());
        let bytes: Vec<u8> = bytes.take(4 * self.parameters().count()).collect();
        words(&bytes).collect()
    }

    /// Returns a digest that identifies the layout of parameters and state: two builds with the same digest
    /// read each other's connections correctly. It covers the algorithm's name, the effect of each bit of a
    /// state on the fields, and the fields' names.
    #[must_use]
    pub fn layout_digest(self) -> u64 {
        let mut digest = Digest::default();
        digest.add(self.name().as_bytes());
        for parameter in self.parameters() {
            digest.add(parameter.name.as_bytes());
        }
        for field in self.fields() {
            digest.add(field.name.as_bytes());
            digest.add(&field.divisor.to_le_bytes());
        }
        for bit in 0..64 * STATE_WORDS {
            let mut state = [0; STATE_WORDS];
            state[bit / 64] = 1 << (bit % 64);
            let values = self.values(&state);
            values.iter().for_each(|v| digest.add(&v.to_le_bytes()));
        }
        digest.0
    }

    /// Creates the arithmetic of one connection, with `values` for its parameters, in their order.
    #[must_use]
    pub fn connection(self, values: &[u32]) -> Connection {
        let mut state = [0u32; 2 * STATE_WORDS];
        for (at, parameter) in self.parameters().enumerate() {
            let value = values.get(at).copied().unwrap_or(parameter.default);
            state[at] = value.clamp(parameter.min, parameter.max);
        }
        Connection {
            algorithm: self,
            private_state: PrivateState(state),
            srtt: Srtt::default(),
            ca_state: State::Open,
        }
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Algorithm").field(&self.name()).finish()
    }
}

/// FNV-1a, 64 bits (draft-eastlake-fnv), with a separator after each part.
pub(crate) struct Digest(pub(crate) u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes.iter().chain(&[0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Splits bytes into 32-bit words in the machine's byte order; a remainder is left out.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u32::from_ne_bytes(*word))
}

/// A connection under simulated time.
#[derive(Debug, Clone)]
pub struct Connection {
    algorithm: Algorithm,
    private_state: PrivateState,
    srtt: Srtt,
    ca_state: State,
}

/// Private state of a connection, with the size (104 bytes) and the alignment of the kernel's `icsk_ca_priv`.
#[derive(Debug, Clone)]
#[repr(C, align(8))]
struct PrivateState([u32; 2 * STATE_WORDS]);

/// Smoothed round trip, 1/8 of each sample (RFC 6298).
#[derive(Debug, Clone, Copy, Default)]
struct Srtt(Option<u32>);

impl Srtt {
    fn update(&mut self, sample: u32) {
        self.0 = Some(self.0.map_or(sample, |old| old - old / 8 + sample / 8));
    }
}

impl Connection {
    /// Returns the values of [`Algorithm::fields`], in their order, as stored.
    #[must_use]
    pub fn values(&self) -> Vec<i64> {
        let mut values = vec![0; self.algorithm.fields().count()];
        // SAFETY: `read` writes one value for each field, from a state as large as it may be.
        unsafe {
            (self.algorithm.0.read)(self.private_state.0.as_ptr().cast(), values.as_mut_ptr());
        }
        values
    }

    /// Returns its private state as 32-bit words, in the layout of `icsk_ca_priv`: parameters first. A caller
    /// may overwrite it to continue from another connection's state.
    pub fn state_mut(&mut self) -> &mut [u32; 2 * STATE_WORDS] {
        &mut self.private_state.0
    }

    fn view(&self, window: &Window, prior_cwnd: u32, now: Time) -> ConnectionView {
        ConnectionView {
            cwnd: window.cwnd,
            cwnd_cnt: window.cwnd_cnt,
            ssthresh: window.ssthresh,
            prior_cwnd,
            state: self.ca_state as u32,
            srtt_us: self.srtt.0.unwrap_or(0),
            mss: 1448,
            packets_out: 0,
            now_us: now.as_nanos() / 1000,
        }
    }
}

impl CongestionControl for Connection {
    fn init(&mut self, window: &mut Window, now: Time) {
        let mut view = self.view(window, 0, now);
        // SAFETY: state and connection are exclusively ours and of the sizes that cc.h gives them.
        unsafe { (self.algorithm.0.init)(self.private_state.0.as_mut_ptr().cast(), &raw mut view) };
        view.write_back(window);
    }

    fn ssthresh(&mut self, window: &Window, now: Time) -> u32 {
        let view = self.view(window, 0, now);
        // SAFETY: as in `init`.
        unsafe {
            (self.algorithm.0.ssthresh)(self.private_state.0.as_mut_ptr().cast(), &raw const view)
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, ack: &Ack) {
        if !ack.cwnd_limited {
            return;
        }
        let mut view = self.view(window, 0, ack.now);
        view.packets_out = ack.in_flight;
        // SAFETY: as in `init`.
        unsafe {
            (self.algorithm.0.cong_avoid)(
                self.private_state.0.as_mut_ptr().cast(),
                &raw mut view,
                ack.acked,
            );
        }
        view.write_back(window);
    }

    fn pkts_acked(&mut self, window: &Window, sample: &AckSample) {
        let rtt_us = sample
            .rtt
            .map(|rtt| u32::try_from(rtt.as_nanos() / 1000).unwrap_or(u32::MAX));
        if let Some(rtt) = rtt_us {
            self.srtt.update(rtt);
        }
        self.ca_state = sample.state;
        let view = self.view(window, 0, sample.now);
        let measured = Sample {
            pkts_acked: sample.pkts_acked,
            rtt_us: rtt_us.map_or(-1, |rtt| i32::try_from(rtt).unwrap_or(i32::MAX)),
            in_flight: sample.in_flight,
        };
        // SAFETY: as in `init`.
        unsafe {
            (self.algorithm.0.pkts_acked)(
                self.private_state.0.as_mut_ptr().cast(),
                &raw const view,
                &raw const measured,
            );
        }
    }

    fn set_state(&mut self, window: &Window, state: State, now: Time) {
        let view = self.view(window, 0, now);
        // SAFETY: as in `init`.
        unsafe {
            (self.algorithm.0.set_state)(
                self.private_state.0.as_mut_ptr().cast(),
                &raw const view,
                state as u8,
            );
        }
        self.ca_state = state;
    }

    fn undo_cwnd(&mut self, window: &Window, prior_cwnd: u32, now: Time) -> u32 {
        let view = self.view(window, prior_cwnd, now);
        // SAFETY: as in `init`.
        unsafe {
            (self.algorithm.0.undo_cwnd)(self.private_state.0.as_mut_ptr().cast(), &raw const view)
        }
    }

    fn pacing_rate(&self, window: &Window, srtt: Time) -> Option<BitRate> {
        let mut view = self.view(window, 0, Time::ZERO);
        view.srtt_us = u32::try_from(srtt.as_nanos() / 1000).unwrap_or(u32::MAX);
        // SAFETY: as in `init`.
        let bytes = unsafe {
            (self.algorithm.0.pacing_rate)(self.private_state.0.as_ptr().cast(), &raw const view)
        };
        (bytes > 0).then(|| BitRate::from_bits(bytes.saturating_mul(8)))
    }
}

/// `struct cc_connection`.
#[repr(C)]
struct ConnectionView {
    cwnd: u32,
    cwnd_cnt: u32,
    ssthresh: u32,
    prior_cwnd: u32,
    state: u32,
    srtt_us: u32,
    mss: u32,
    packets_out: u32,
    now_us: u64,
}

impl ConnectionView {
    fn write_back(&self, window: &mut Window) {
        window.cwnd = self.cwnd.max(1);
        window.cwnd_cnt = self.cwnd_cnt;
        window.ssthresh = self.ssthresh;
    }
}

/// `struct cc_sample`.
#[repr(C)]
struct Sample {
    pkts_acked: u32,
    rtt_us: i32,
    in_flight: u32,
}

/// `struct cc_parameter` in math.c.
#[repr(C)]
struct RawParameter {
    name: *const c_char,
    unit: *const c_char,
    about: *const c_char,
    initial: u32,
    least: u32,
    most: u32,
}

/// `struct cc_field`.
#[repr(C)]
struct RawField {
    name: *const c_char,
    unit: *const c_char,
    about: *const c_char,
    divisor: u32,
}

/// `struct cc_algorithm`.
#[repr(C)]
struct RawAlgorithm {
    name: *const c_char,
    parameters: *const RawParameter,
    fields: *const RawField,
    read: unsafe extern "C" fn(*const u8, *mut i64),
    init: unsafe extern "C" fn(*mut u8, *mut ConnectionView),
    ssthresh: unsafe extern "C" fn(*mut u8, *const ConnectionView) -> u32,
    cong_avoid: unsafe extern "C" fn(*mut u8, *mut ConnectionView, u32),
    pkts_acked: unsafe extern "C" fn(*mut u8, *const ConnectionView, *const Sample),
    set_state: unsafe extern "C" fn(*mut u8, *const ConnectionView, u8),
    undo_cwnd: unsafe extern "C" fn(*mut u8, *const ConnectionView) -> u32,
    pacing_rate: unsafe extern "C" fn(*const u8, *const ConnectionView) -> u64,
}

// SAFETY: the entry is constant; its functions read and write only their arguments.
unsafe impl Sync for RawAlgorithm {}
// SAFETY: as above.
unsafe impl Send for RawAlgorithm {}

unsafe extern "C" {
    static longhaul_cc_algorithms: [RawAlgorithm; 0];
}

/// Returns the entries from `first` to the one without a name.
///
/// # Safety
/// `first` points into a constant array that ends with an entry without a name.
unsafe fn entries<T: 'static>(
    first: *const T,
    name: fn(&T) -> *const c_char,
) -> impl Iterator<Item = &'static T> {
    (0..)
        // SAFETY: `take_while` stops at the last entry, which is still in the array.
        .map(move |at| unsafe { &*first.add(at) })
        .take_while(move |entry| !name(entry).is_null())
}

/// # Safety
/// `literal` is a C string literal, UTF-8.
unsafe fn text(literal: *const c_char) -> &'static str {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(literal) }.to_str().unwrap_or("?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_in_the_order_of_the_header() {
        let scalable = algorithm("lh_scalable").unwrap();
        let names: Vec<_> = scalable.parameters().map(|p| (p.name, p.default)).collect();
        assert_eq!(names, [("ai", 100), ("md_shift", 3)]);
    }

    #[test]
    fn state_begins_with_the_parameters() {
        for algorithm in algorithms() {
            let mut state = [0; STATE_WORDS];
            state[0] = u64::from_ne_bytes([7, 0, 0, 0, 9, 0, 0, 0]);
            let own = algorithm.connection_parameters(&state);
            assert_eq!(own.len(), algorithm.parameters().count());
            assert!(own.iter().eq([7, 9, 0, 0, 0, 0, 0][..own.len()].iter()));
        }
    }

    #[test]
    fn layout_digests_are_distinct() {
        let mut layouts: Vec<_> = algorithms().map(Algorithm::layout_digest).collect();
        let count = layouts.len();
        layouts.sort_unstable();
        layouts.dedup();
        assert_eq!(layouts.len(), count);
        let scalable = algorithm("scalable").unwrap();
        assert_eq!(scalable.layout_digest(), scalable.layout_digest());
    }

    #[test]
    fn a_loss_reduces_the_window_by_an_eighth() {
        let mut connection = algorithm("scalable").unwrap().connection(&[]);
        let window = Window {
            cwnd: 800,
            ..Window::new(10)
        };
        assert_eq!(connection.ssthresh(&window, Time::ZERO), 700);
    }
}
