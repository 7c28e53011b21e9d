// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurement: sends the packets, receives them, and combines the kernel's time stamps.

use anyhow::{Context, Result, bail, ensure};
use longhaul_command::exit::Refusal;
use longhaul_linux::{
    clock,
    netns::{ENTER_HINT, Netns},
    timestamps::{Receiver, Sender},
    wait,
};
use longhaul_netem::conformance::{Packet, ReceiverCounts, Recording, Timing};
use longhaul_units::Time;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Parameters of a probe.
#[derive(Debug)]
pub(super) struct ProbePlan {
    /// Sending namespace.
    pub(super) from: Netns,
    /// Receiving namespace.
    pub(super) to: Netns,
    /// Address in the receiving namespace.
    pub(super) address: IpAddr,
    pub(super) timing: Timing,
    /// Time without a packet, after all were sent, that ends the probe.
    pub(super) wait: Time,
}

/// Interval at which the receiver checks whether it may end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for the time stamps of departures after the last packet was sent.
const STAMP_TIMEOUT: Time = Time::from_secs(1);
/// Least change of the wall clock that counts as a step. The kernel slews the clock by less while a packet is in
/// flight.
const CLOCK_STEP_MAX: Time = Time::from_millis(1);

/// Runs the probe.
pub(super) fn measure(plan: &ProbePlan) -> Result<Recording> {
    let (sender, receiver) = open(plan)?;
    let before = wall_clock_offset();
    let probe_id = clock::wall().as_nanos();
    let sent_all = AtomicBool::new(false);
    let (departures, arrivals) = thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, plan, probe_id, &sent_all));
        let departures = send(&sender, plan, probe_id);
        sent_all.store(true, Ordering::Release);
        (departures, receiving.join())
    });
    let arrivals = arrivals.map_err(|_| anyhow::anyhow!("the receiving thread panicked"))?;
    let (departures, mut arrivals) = (departures?, arrivals?);
    let after = wall_clock_offset();
    ensure!(
        before.max(after) - before.min(after) < CLOCK_STEP_MAX,
        "the clock of this machine was set during the probe: the times are invalid"
    );
    arrivals.receiver_counts.dropped_at_receiver = receiver.dropped()?;
    let packets = combine(plan.timing, &departures, &arrivals.at)?;
    Ok(Recording::new(
        plan.timing,
        packets,
        arrivals.receiver_counts,
    ))
}

/// Returns the difference between the wall clock, which stamps packets, and the monotonic clock.
fn wall_clock_offset() -> Time {
    clock::wall() - clock::now()
}

fn open(plan: &ProbePlan) -> Result<(Sender, Receiver)> {
    let any_port = SocketAddr::new(plan.address, 0);
    let receiver = plan.to.run(|| Receiver::open(any_port));
    let receiver = receiver.map_err(|error| socket_error("receive at", plan, error))?;
    let destination = receiver.address()?;
    let segment = (plan.timing.gso_segments > 1).then(|| payload(plan) as u16);
    let sender = plan.from.run(|| Sender::open(destination, segment));
    let sender = sender.map_err(|error| socket_error("send to", plan, error))?;
    Ok((sender, receiver))
}

fn socket_error(what: &str, plan: &ProbePlan, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Refusal::unsupported(format!(
            "cannot {what} {}: {error}; {ENTER_HINT}",
            plan.address
        )),
        _ => anyhow::Error::new(error).context(format!("cannot {what} {}", plan.address)),
    }
}

/// Returns the bytes of a packet after its IP and UDP headers.
fn payload(plan: &ProbePlan) -> usize {
    let headers = if plan.address.is_ipv4() {
        20 + 8
    } else {
        40 + 8
    };
    usize::from(plan.timing.packet_size) - headers
}

/// Length of the header of every payload: the ID of the probe, and a sequence number that starts at 0.
const PROBE_HEADER_LEN: usize = 12;

/// Sends all messages; returns the departure time of each message, by its number.
fn send(sender: &Sender, plan: &ProbePlan, probe_id: u64) -> Result<Vec<Option<Time>>> {
    wait::disable_timer_slack()?;
    let Timing {
        count,
        interval_ns,
        gso_segments: segments,
        ..
    } = plan.timing;
    let mut message = vec![0; payload(plan) * usize::from(segments)];
    let mut departures = vec![None; (count / u32::from(segments)) as usize];
    let start = clock::now();
    for number in 0..departures.len() {
        sleep_until(start + Time::from_nanos(interval_ns) * number as u64);
        let first = number as u32 * u32::from(segments);
        for (sequence, packet) in (first..).zip(message.chunks_mut(payload(plan))) {
            packet[..8].copy_from_slice(&probe_id.to_be_bytes());
            packet[8..PROBE_HEADER_LEN].copy_from_slice(&sequence.to_be_bytes());
        }
        sender.send(&message).with_context(|| {
            format!(
                "cannot send packet {} of {} bytes",
                first + 1,
                plan.timing.packet_size
            )
        })?;
        collect_departures(sender, &mut departures)?;
    }
    let give_up = clock::now() + STAMP_TIMEOUT;
    while departures.contains(&None) && clock::now() < give_up {
        thread::sleep(POLL_INTERVAL);
        collect_departures(sender, &mut departures)?;
    }
    Ok(departures)
}

fn sleep_until(when: Time) {
    let left = when.since(clock::now());
    if left > Time::ZERO {
        thread::sleep(left.into());
    }
}

fn collect_departures(sender: &Sender, departures: &mut [Option<Time>]) -> Result<()> {
    while let Some(departure) = sender.departure()? {
        if let Some(slot) = departures.get_mut(departure.message as usize) {
            *slot = Some(departure.at);
        }
    }
    Ok(())
}

/// Packets received so far.
#[derive(Debug)]
struct Arrivals {
    /// Time of the first arrival of each packet, by sequence number.
    at: Vec<Option<Time>>,
    receiver_counts: ReceiverCounts,
    /// Highest sequence number so far.
    highest: Option<u32>,
}

impl Arrivals {
    fn new(count: u32) -> Self {
        Self {
            at: vec![None; count as usize],
            receiver_counts: ReceiverCounts::default(),
            highest: None,
        }
    }

    fn record(&mut self, sequence: u32, at: Time) {
        let Some(slot) = self.at.get_mut(sequence as usize) else {
            return;
        };
        if slot.is_some() {
            self.receiver_counts.duplicated += 1;
            return;
        }
        *slot = Some(at);
        if self.highest > Some(sequence) {
            self.receiver_counts.reordered += 1;
        }
        self.highest = self.highest.max(Some(sequence));
    }
}

fn receive(
    receiver: &Receiver,
    plan: &ProbePlan,
    probe_id: u64,
    sent_all: &AtomicBool,
) -> Result<Arrivals> {
    let mut arrivals = Arrivals::new(plan.timing.count);
    let mut buffer = [0; PROBE_HEADER_LEN];
    let mut latest = clock::now();
    loop {
        let arrival = receiver.receive(&mut buffer, POLL_INTERVAL)?;
        let own_packet = arrival.and_then(|arrival| {
            let sequence = parse_sequence(&buffer[..arrival.len], probe_id)?;
            Some((sequence, arrival.at))
        });
        if let Some((sequence, at)) = own_packet {
            arrivals.record(sequence, at.context("the kernel stamped no arrival")?);
            latest = clock::now();
        } else if !sent_all.load(Ordering::Acquire) {
            latest = clock::now();
        } else if clock::now() - latest > plan.wait {
            return Ok(arrivals);
        }
    }
}

/// Returns the sequence number in a payload of the probe `probe_id`; `None` for other packets.
fn parse_sequence(payload: &[u8], probe_id: u64) -> Option<u32> {
    let (head, sequence) = payload.split_at_checked(8)?;
    (head == probe_id.to_be_bytes()).then_some(())?;
    Some(u32::from_be_bytes(sequence.try_into().ok()?))
}

/// Combines departures and arrivals. All packets of a message have the same departure time.
fn combine(
    timing: Timing,
    departures: &[Option<Time>],
    arrivals: &[Option<Time>],
) -> Result<Vec<Packet>> {
    let Some(start) = departures.iter().flatten().min().copied() else {
        bail!("the kernel stamped no departure: the sending interface may not support it");
    };
    let since = |at: Time| at.as_nanos() as i64 - start.as_nanos() as i64;
    let packet = |(n, arrival): (usize, &Option<Time>)| Packet {
        sequence: n as u32 + 1,
        sent_ns: departures[n / usize::from(timing.gso_segments)].map(since),
        received_ns: arrival.map(since),
    };
    Ok(arrivals.iter().enumerate().map(packet).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_first_copy_and_reordering() {
        let mut arrivals = Arrivals::new(5);
        for (at, sequence) in (1..).zip([0, 3, 1, 3, 2, 4, 9]) {
            arrivals.record(sequence, Time::from_secs(at));
        }
        let (duplicated, reordered) = (
            arrivals.receiver_counts.duplicated,
            arrivals.receiver_counts.reordered,
        );
        assert_eq!((duplicated, reordered), (1, 2));
        assert_eq!(arrivals.at[3], Some(Time::from_secs(2)));
        assert!(arrivals.at.iter().all(Option::is_some));
    }

    #[test]
    fn packets_share_departure_of_their_message() {
        let timing = Timing {
            count: 4,
            interval_ns: 0,
            packet_size: 100,
            gso_segments: 2,
        };
        let s = |n| Some(Time::from_secs(n));
        let packets = combine(timing, &[s(10), None], &[s(11), None, s(12), s(13)]).unwrap();
        let sent: Vec<_> = packets.iter().map(|packet| packet.sent_ns).collect();
        assert_eq!(sent, [Some(0), Some(0), None, None]);
        assert_eq!(packets[0].delay_ns(), Some(1_000_000_000));
        assert_eq!(packets[3].received_ns, Some(3_000_000_000));
        assert!(combine(timing, &[None, None], &[None; 4]).is_err());
    }

    /// Frequent packets of other senders must not keep the probe from ending.
    #[test]
    fn other_senders_do_not_delay_the_end() {
        let address = IpAddr::from([127, 0, 0, 1]);
        let receiver = Receiver::open(SocketAddr::new(address, 0)).unwrap();
        let plan = ProbePlan {
            from: Netns::current().unwrap(),
            to: Netns::current().unwrap(),
            address,
            timing: Timing {
                count: 1,
                interval_ns: 0,
                packet_size: 100,
                gso_segments: 1,
            },
            wait: Time::from_millis(50),
        };
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let other_sender = scope.spawn(|| {
                let other_sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                let give_up = clock::now() + Time::from_secs(10);
                while !ended.load(Ordering::Acquire) && clock::now() < give_up {
                    other_sender
                        .send_to(b"hello", receiver.address().unwrap())
                        .unwrap();
                    thread::sleep(Duration::from_millis(1));
                }
                ended.load(Ordering::Acquire)
            });
            let arrivals = receive(&receiver, &plan, 7, &AtomicBool::new(true)).unwrap();
            ended.store(true, Ordering::Release);
            assert!(
                other_sender.join().unwrap(),
                "the probe waited for another sender"
            );
            assert_eq!(arrivals.at, [None]);
        });
    }

    #[test]
    fn ignores_packets_of_other_senders() {
        let mut payload = 7_u64.to_be_bytes().to_vec();
        payload.extend(5_u32.to_be_bytes());
        assert_eq!(parse_sequence(&payload, 7), Some(5));
        assert_eq!(parse_sequence(&payload, 8), None);
        assert_eq!(parse_sequence(b"hello", 7), None);
    }
}
