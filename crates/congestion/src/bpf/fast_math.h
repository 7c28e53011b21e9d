/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* FAST TCP: keeps `alpha` packets of its own in the queue, which it estimates from the round trip. So it
 * finds its rate without losses.
 *
 * Sources: C. Jin, D. Wei, S. Low, "FAST TCP: Motivation, Architecture, Algorithms, Performance",
 * INFOCOM 2004; for details not in it, the public model for ns-2 (tcp-fast.cc 1.1.3).
 * Linux never had it.
 *
 *   every other round trip:  w ← min(2w, (1 − γ)w + γ(w_old·baseRTT/avgRTT + α))
 *   w_old     the window when the packet ACKed now was sent: the packets delivered since
 *   avgRTT    smoothed by min(3/w, 1/4) a packet; baseRTT the least ever seen
 *
 * Differences from the paper: an ACK of k packets counts as k samples in avgRTT, since receivers
 * merge segments; below mi_threshold of queueing delay the window grows by a packet for each ACKed
 * one (the ns-2 model: for each ACK), which is both slow start and recovery, without
 * ssthresh; after a time-out it is Linux's slow start up to ssthresh. The paper's α may depend on the
 * rate; here it is a number: 8, 20 and 200 packets are its authors' for 10, 100 and 1000 Mbit/s.
 *
 * Differences from the ns-2 model: the paper's weight for avgRTT instead of 1/max(256, w/3); an
 * increase is always spread over the ACKs of one round trip (there only from 4 ms on); losses are
 * recovered by Linux (PRR), from half the window.
 *
 * An extension: base_rtt_window. As published, baseRTT never grows: on a path that becomes longer, FAST
 * mistakes the new propagation for a queue and settles at about α/q packets a second, q being the
 * difference. With a window of some seconds, FAST pauses for two round trips at that interval, with twice
 * its packets in the queue removed from its window. It takes the least round trip seen meanwhile as
 * baseRTT, and returns to its window over one more. Where flows share a queue, packets of
 * others stay in it and count as propagation, more at each probe: set a window only for a flow that is
 * alone or changes its path. */
#ifndef LH_FAST_MATH_H
#define LH_FAST_MATH_H

#include "cc.h"

#define FAST_PARAMS(P)                                                                             \
	P(alpha, "packets", 200, 2, 100000, "own packets to keep in the queue")                    \
	P(gamma, "%", 50, 1, 100, "weight of the computed window in an update")                    \
	P(mi_threshold, "us", 750, 0, 1000000, "below this queueing delay the window doubles each RTT") \
	P(base_rtt_window, "s", 0, 0, 3600, "lifetime of baseRTT; 0: unlimited, as published")

#define FAST_STATE(S)                                                                              \
	S(base_rtt, "us", 1, "smallest RTT: the estimate of the propagation delay")                \
	S(avg_rtt, "us", 65536, "smoothed RTT")                                                    \
	S(w_old, "packets", 1, "window when the last ACKed packet was sent")                       \
	S(target, "packets", 1, "window that the last update computed")

struct fast_params {
	FAST_PARAMS(CC_PARAM_FIELD)
};

enum fast_phase {
	FAST_STEADY,
	FAST_PROBING,	/* a small window, so that baseRTT can be measured */
	FAST_RETURNING,	/* back to the previous window; its queue is not measured yet */
};

struct fast {
	struct fast_params params;
	u32 base_rtt;		/* us; 0: none yet */
	u32 probe_rtt;		/* us, smallest of this probe; 0: none yet */
	u64 avg_rtt;		/* us << FAST_FRACTION */
	u64 base_us;		/* when base_rtt was last measured */
	u64 next_us;		/* next update, or end of the phase */
	u32 w_old;
	u32 target;
	u32 per;		/* ACKed packets for each step towards target */
	u32 phase;
};

#define FAST_FRACTION 16
#define FAST_RTT_MOST_US 0xffffff	/* 16 s: so that products stay below 2^64 */

CC_INLINE u32 fast_avg_us(const struct fast *ca) { return ca->avg_rtt >> FAST_FRACTION; }

CC_INLINE void fast_init(struct fast *ca, struct cc_connection *c)
{
	ca->base_us = c->now_us;
}

/* The part of (from − to) that `packets` samples take at min(3/w, 1/4) each. */
CC_INLINE u64 fast_step(u64 difference, u32 packets, u32 cwnd)
{
	u32 weight = cc_min(packets, 1u << 16) * 3;

	if (cwnd < 12)
		cwnd = 12;
	return weight >= cwnd ? difference : difference * weight / cwnd;
}

CC_INLINE void fast_average(struct fast *ca, u32 rtt, u32 packets, u32 cwnd)
{
	u64 now = (u64)rtt << FAST_FRACTION;

	if (ca->avg_rtt == 0)
		ca->avg_rtt = now;
	else if (now > ca->avg_rtt)
		ca->avg_rtt += fast_step(now - ca->avg_rtt, packets, cwnd);
	else
		ca->avg_rtt -= fast_step(ca->avg_rtt - now, packets, cwnd);
}

CC_INLINE void fast_pkts_acked(struct fast *ca, const struct cc_connection *c,
			       const struct cc_sample *sample)
{
	u32 rtt;

	if (sample->rtt_us <= 0)
		return;
	rtt = cc_min(sample->rtt_us, FAST_RTT_MOST_US);
	if (ca->base_rtt == 0 || rtt <= ca->base_rtt) {
		ca->base_rtt = rtt;
		ca->base_us = c->now_us;
	}
	if (ca->probe_rtt == 0 || rtt < ca->probe_rtt)
		ca->probe_rtt = rtt;
	fast_average(ca, rtt, sample->pkts_acked, c->cwnd);
	ca->w_old = sample->in_flight ? sample->in_flight : c->cwnd;
}

/* (1 − γ)w + γ(w_old·baseRTT/avgRTT + α), at most 2w. */
CC_INLINE u32 fast_window(const struct fast *ca, u32 cwnd)
{
	u64 base = (u64)ca->base_rtt << 8, avg = ca->avg_rtt >> (FAST_FRACTION - 8);
	u64 goal = ca->w_old * base / cc_max(avg, 1);
	u64 gamma = ca->params.gamma;
	u64 window = ((100 - gamma) * cwnd + gamma * (goal + ca->params.alpha)) / 100;

	if (window > 2 * (u64)cwnd)
		window = 2 * (u64)cwnd;
	return cc_clamp(window > CC_INFINITE_SSTHRESH ? CC_INFINITE_SSTHRESH : window, 2,
			CC_INFINITE_SSTHRESH);
}

/* Shrinks the window at once, and grows it over the ACKs of about one round trip. */
CC_INLINE void fast_set_target(struct fast *ca, struct cc_connection *c, u32 target)
{
	ca->target = target;
	c->cwnd_cnt = 0;
	if (target <= c->cwnd)
		c->cwnd = target;
	else
		ca->per = cc_max(c->cwnd / (target - c->cwnd), 1);
}

CC_INLINE void fast_grow_to_target(struct fast *ca, struct cc_connection *c, u32 acked)
{
	if (c->cwnd >= ca->target)
		return;
	cc_additive_increase(c, ca->per, acked);
	c->cwnd = cc_min(c->cwnd, ca->target);
}

CC_INLINE int fast_stale(const struct fast *ca, const struct cc_connection *c)
{
	return ca->params.base_rtt_window &&
	       c->now_us - ca->base_us >= (u64)ca->params.base_rtt_window * 1000000;
}

CC_INLINE void fast_begin_probe(struct fast *ca, struct cc_connection *c)
{
	u32 queued = 2 * ca->params.alpha;

	ca->phase = FAST_PROBING;
	ca->target = c->cwnd;
	ca->probe_rtt = 0;
	ca->next_us = c->now_us + 2 * (u64)fast_avg_us(ca);
	c->cwnd = cc_max(c->cwnd > 2 * queued ? c->cwnd - queued : c->cwnd / 2, 2);
}

CC_INLINE void fast_end_probe(struct fast *ca, struct cc_connection *c)
{
	if (ca->probe_rtt) {
		ca->base_rtt = ca->probe_rtt;
		ca->base_us = c->now_us;
	}
	ca->phase = FAST_RETURNING;
	ca->next_us = c->now_us + 3 * (u64)fast_avg_us(ca);
	fast_set_target(ca, c, cc_max(ca->target, c->cwnd));
}

CC_INLINE int fast_queue_is_short(const struct fast *ca)
{
	return fast_avg_us(ca) < ca->base_rtt + ca->params.mi_threshold;
}

CC_INLINE void fast_steady(struct fast *ca, struct cc_connection *c, u32 acked)
{
	if (fast_stale(ca, c)) {
		fast_begin_probe(ca, c);
	} else if (fast_queue_is_short(ca)) {
		c->cwnd = cc_min(c->cwnd + acked, CC_INFINITE_SSTHRESH);
		ca->target = c->cwnd;
		ca->next_us = c->now_us;
	} else if (c->now_us >= ca->next_us) {
		fast_set_target(ca, c, fast_window(ca, c->cwnd));
		ca->next_us = c->now_us + 2 * (u64)fast_avg_us(ca);
	} else {
		fast_grow_to_target(ca, c, acked);
	}
}

CC_INLINE void fast_cong_avoid(struct fast *ca, struct cc_connection *c, u32 acked)
{
	if (ca->base_rtt == 0 || c->state == CC_LOSS) {
		if (cc_in_slow_start(c))
			cc_slow_start(c, acked);
		return;
	}
	if (ca->phase == FAST_PROBING) {
		if (c->now_us >= ca->next_us)
			fast_end_probe(ca, c);
		return;
	}
	if (ca->phase == FAST_RETURNING) {
		fast_grow_to_target(ca, c, acked);
		if (c->now_us >= ca->next_us)
			ca->phase = FAST_STEADY;
		return;
	}
	fast_steady(ca, c, acked);
}

CC_INLINE u32 fast_ssthresh(struct fast *ca, const struct cc_connection *c)
{
	ca->phase = FAST_STEADY;
	ca->target = 0;
	ca->next_us = c->now_us + 2 * (u64)fast_avg_us(ca);
	return cc_max(c->cwnd / 2, 2);
}

CC_INLINE void fast_set_state(struct fast *ca, const struct cc_connection *c, u8 state)
{
	(void)ca, (void)c, (void)state;
}

CC_INLINE u32 fast_undo_cwnd(struct fast *ca, const struct cc_connection *c)
{
	(void)ca;
	return cc_undo_cwnd(c);
}

#endif
