// SPDX-License-Identifier: GPL-2.0-only
/* ACK thinning and the marking of ACKs for pacing, at the egress of a cgroup's sockets.
 *
 * It uses a cgroup's egress and not a device's (tc), because TCP does not notice a drop here, on any
 * device, and no other part of the host changes. A packet that a tc program drops is NET_XMIT_DROP to
 * TCP, which then halves the window of the data that this socket sends itself (tcp_enter_cwr in
 * __tcp_transmit_skb, net/ipv4/tcp_output.c). A cgroup's drop is an error, which only the kernel's
 * counters record.
 *
 * A program cannot send. A delayed ACK whose time is up goes through a ring buffer to the process that
 * attached this, which sends it. A lease says that the process still runs. Without it every ACK is
 * sent at once. */
#include "contexts.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "ack_packet.h"

char LICENSE[] SEC("license") = "GPL";

/* Set at load time; src/ack_thin/attach.rs has the same layout. */
const volatile struct {
	u64 hold_ns_max;
	u32 netns;	/* inode of the network namespace */
	u32 ratio;	/* full-sized segments an ACK; 1: no thinning */
	u32 pace_class; /* queueing class of pure ACKs; 0: none */
	u32 pace_device; /* index of the device with this class */
} config = { .ratio = 1 };

/* Most flows at a time; further flows are not thinned. 232 bytes each. */
#define FLOWS_MAX 16384
/* A flow without packets for this time is removed. */
#define SILENCE_NS (60ull * 1000 * 1000 * 1000)
/* Shortest delay of an ACK: a timer and waking a process take as long. */
#define HOLD_NS_MIN (1000ull * 1000)
#define RETRY_NS (1000ull * 1000)

struct kept {
	u32 bytes;
	u8 packet[ACK_PACKET_MAX];
};

struct flow {
	struct bpf_timer timer;
	struct bpf_spin_lock lock;
	struct kept kept;
	u64 timer_at;
	struct ack_flow state;
};

/* src/ack_thin/delayed_acks.rs has the same offsets. */
_Static_assert(__builtin_offsetof(struct flow, kept) == 20, "delayed_acks.rs");
_Static_assert(__builtin_offsetof(struct flow, state.deadline) == 112, "delayed_acks.rs");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS_MAX);
	__type(key, u64); /* socket cookie */
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} late SEC(".maps");

/* Time (CLOCK_MONOTONIC, ns) until which the process sends delayed ACKs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lease SEC(".maps");

/* src/ack_thin/attach.rs has the same members. */
struct counts {
	u64 pure;     /* pure ACKs that the sockets generated */
	u64 withheld; /* of which were withheld */
	u64 late;     /* of which were sent after a delay */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} counts SEC(".maps");

CC_INLINE struct counts *count(void)
{
	u32 only = 0;

	return bpf_map_lookup_elem(&counts, &only);
}

CC_INLINE int is_leased(u64 now)
{
	u32 only = 0;
	u64 *until = bpf_map_lookup_elem(&lease, &only);

	return until && now < *until;
}

/* Returns the time of the flow's next timer. */
CC_INLINE u64 next_timer(const struct ack_flow *state)
{
	return state->deadline ? state->deadline : state->passed_at + SILENCE_NS;
}

/* Starts the timer again: the ring buffer is full. */
CC_INLINE int retry_timer(struct flow *flow, u64 now)
{
	bpf_spin_lock(&flow->lock);
	flow->timer_at = now + RETRY_NS;
	bpf_spin_unlock(&flow->lock);
	bpf_timer_start(&flow->timer, RETRY_NS, 0);
	return 0;
}

/* Timer of a flow. The flow is looked up again for the verifier of Linux 6.1, which identifies a lock by
 * its look-up. The record in the ring buffer is tested once, since that verifier loses the result. */
static int flow_timer(void *map, u64 *cookie, struct flow *timer_value)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, cookie);
	u64 now = bpf_ktime_get_ns(), next;
	struct counts *seen = count();
	struct kept *out;
	int release;

	if (!flow)
		return 0;
	out = bpf_ringbuf_reserve(&late, sizeof(*out), 0);
	if (!out)
		return retry_timer(flow, now);
	bpf_spin_lock(&flow->lock);
	release = ack_release(&flow->state, now);
	if (release)
		*out = flow->kept;
	next = next_timer(&flow->state);
	if (next <= now && flow->state.deadline)
		next = now + RETRY_NS;
	flow->timer_at = next;
	bpf_spin_unlock(&flow->lock);
	if (release)
		bpf_ringbuf_submit(out, 0);
	else
		bpf_ringbuf_discard(out, 0);
	if (release && seen)
		seen->late++;
	if (next <= now)
		bpf_map_delete_elem(&flows, cookie);
	else
		bpf_timer_start(&flow->timer, next - now, 0);
	return 0;
}

CC_INLINE void begin(u64 cookie, u64 now, const struct ack_pure *ack)
{
	struct flow new = {}, *flow;

	ack_begin(&new.state, now, ack);
	new.timer_at = now + SILENCE_NS;
	if (bpf_map_update_elem(&flows, &cookie, &new, BPF_NOEXIST))
		return;
	flow = bpf_map_lookup_elem(&flows, &cookie);
	if (!flow || bpf_timer_init(&flow->timer, &flows, CLOCK_MONOTONIC))
		return;
	bpf_timer_set_callback(&flow->timer, flow_timer);
	bpf_timer_start(&flow->timer, SILENCE_NS, 0);
}

/* The delay is at most a quarter of the round trip, as in the draft on QUIC's ACK frequency
 * (draft-ietf-quic-ack-frequency §6.5). */
CC_INLINE u64 hold_ns(const struct tcp_sock *tp)
{
	u64 quarter = (u64)(tp->srtt_us >> 3) * 250;

	if (quarter < HOLD_NS_MIN)
		quarter = HOLD_NS_MIN;
	return tp->srtt_us && quarter < config.hold_ns_max ? quarter : config.hold_ns_max;
}

CC_INLINE struct ack_limits limits(const struct tcp_sock *tp)
{
	return (struct ack_limits){
		.hold_ns = hold_ns(tp),
		.count_max = config.ratio,
		.covered_max = config.ratio * cc_max(tp->inet_conn.icsk_ack.rcv_mss, 1),
	};
}

/* Stores the packet, or returns that it is sent. */
CC_INLINE enum ack_verdict offer(struct flow *flow, const struct kept *packet,
				 const struct ack_pure *ack, const struct ack_limits *limits,
				 u64 now)
{
	enum ack_verdict verdict;
	u64 deadline = 0;

	bpf_spin_lock(&flow->lock);
	verdict = ack_offer(&flow->state, now, ack, limits);
	if (verdict == ACK_HOLD) {
		flow->kept = *packet;
		if (flow->state.deadline < flow->timer_at)
			flow->timer_at = deadline = flow->state.deadline;
	}
	bpf_spin_unlock(&flow->lock);
	if (deadline)
		bpf_timer_start(&flow->timer, deadline > now ? deadline - now : 1, 0);
	return verdict;
}

CC_INLINE void flush(struct flow *flow, u64 now)
{
	bpf_spin_lock(&flow->lock);
	ack_flush(&flow->state, now);
	bpf_spin_unlock(&flow->lock);
}

/* Only with SACK: without it, each duplicate counts (RFC 5681 §3.2), and one after a stored ACK would
 * look like the ACK itself. */
CC_INLINE int is_thinned(const struct tcp_sock *tp, u64 now)
{
	return config.ratio > 1 && BPF_CORE_READ_BITFIELD(tp, rx_opt.sack_ok) &&
	       tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net->ns.inum == config.netns &&
	       is_leased(now);
}

SEC("cgroup_skb/egress")
int ack_egress(struct __sk_buff *skb)
{
	struct kept packet = { .bytes = skb->len };
	u64 cookie = bpf_get_socket_cookie(skb), now = bpf_ktime_get_ns();
	u32 head = cc_min(skb->len, ACK_PACKET_MAX);
	struct bpf_sock *sk = skb->sk;
	struct tcp_sock *tp;
	enum ack_kind kind;
	struct ack_pure ack;
	struct counts *seen;
	struct flow *flow;

	if (!sk || head < 40 || bpf_skb_load_bytes(skb, 0, packet.packet, head))
		return PACKET_GOES;
	kind = ack_look_at(packet.packet, skb->len, &ack);
	if (kind == ACK_NOT_TCP)
		return PACKET_GOES;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return PACKET_GOES;
	flow = bpf_map_lookup_elem(&flows, &cookie);
	if (kind == ACK_OTHER) {
		if (flow)
			flush(flow, now);
		return PACKET_GOES;
	}
	seen = count();
	if (seen)
		seen->pure++;
	if (config.pace_class && skb->ifindex == config.pace_device)
		skb->priority = config.pace_class;
	if (!is_thinned(tp, now)) {
		if (flow)
			flush(flow, now);
	} else if (!flow) {
		begin(cookie, now, &ack);
	} else {
		struct ack_limits most = limits(tp);

		if (offer(flow, &packet, &ack, &most, now) == ACK_HOLD) {
			if (seen)
				seen->withheld++;
			return PACKET_STAYS;
		}
	}
	return PACKET_GOES;
}
