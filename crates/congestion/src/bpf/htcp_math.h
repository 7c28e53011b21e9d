/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* H-TCP: the window grows faster with the time since the last congestion. A loss reduces it to the size
 * that just drains the queue.
 *
 * Sources: D. Leith and R. Shorten, "H-TCP: TCP for high-speed and long-distance networks", 2004, and
 * draft-leith-tcp-htcp. With D the seconds since the last congestion ended:
 *   f(D)  = 1 up to one second, then 1 + 10 (D - 1) + ((D - 1)/2)^2
 *   f'    = max(1, f min RTT / 100 ms), the ratio within 0.1 and 2     RTT scaling
 *   alpha = 2 (1 - beta) f'                                            packets more a round trip
 *   beta  = min RTT / max RTT within 0.5 and 0.8                       adaptive backoff
 *   beta  = 0.5 where the rate before this loss and the one before differ by more than a fifth
 *                                                                      bandwidth switch
 *
 * Differences from Linux (net/ipv4/tcp_htcp.c). `jiffy_us` = 1000000/HZ behaves like Linux in those
 * marked with *:
 * * times are microseconds. Linux's are jiffies: round trips are rounded up to one, and alpha is
 *   coarse: 38 ms count as 40 at HZ = 250, and so with the next point as f'/f = 0.4.
 * * f and f' are stored in 1/128. Linux stores whole numbers, RTT scaling in eighths: 8/scale with
 *   scale = 800 ms / min RTT, rounded down.
 * * exactly alpha packets for a window of ACKed ones. Linux adds at most one for an ACK, and does not
 *   count that ACK and the remainder. So it grows more slowly the more packets an ACK covers:
 *   by a sixth at alpha = w/10 and two packets an ACK. What slow start leaves of an ACK counts, too.
 * - at most one packet for each ACKed one, for any alpha: not faster than slow start.
 * - f does not overflow: Linux squares half of D in 32 bits, which wraps after 131 s without a loss
 *   at HZ = 1000, and after 524 s at HZ = 250.
 * * an undone reduction restores max RTT, the rates and beta. Linux restores only the time of the last
 *   congestion: the backoff has already changed the other values that it saves. Where a time-out follows
 *   a fast retransmit, even that time is the fast retransmit's.
 * - the first rate is counted from the connection's beginning, Linux's from the machine's.
 * - the smallest rate of an epoch is not stored: it is unused.
 * - `adaptive_backoff` is a parameter: 0 always halves.
 *
 * Differences from the paper: those of Linux. Beta is adaptive from the second loss on
 * whose rate is like the one before, and only where min RTT is over 10 ms; max RTT decays by a
 * twentieth of its distance at a loss, and grows by at most 20 ms at a time; min RTT never grows, so
 * that after a change to a longer path beta stays near 0.5 or wherever the old minimum leaves it. */
#ifndef LH_HTCP_MATH_H
#define LH_HTCP_MATH_H

#include "cc.h"

#define HTCP_PARAMS(P)                                                                             \
	P(adaptive_backoff, "", 1, 0, 1, "1: a loss reduces the window to min RTT/max RTT; 0: to half") \
	P(rtt_scaling, "", 1, 0, 1, "1: growth in proportion to the RTT, so that flows share fairly") \
	P(bandwidth_switch, "", 1, 0, 1, "1: half at a loss after the rate changed by a fifth")    \
	P(jiffy_us, "us", 0, 0, 10000, "1000000/HZ: Linux's arithmetic with that tick; 0: exact")

#define HTCP_STATE(S)                                                                              \
	S(alpha, "packets", 128, "growth each round trip")                                         \
	S(beta, "", 128, "part of the window that remained after the last loss")                   \
	S(min_rtt, "us", 1, "smallest RTT so far")                                                 \
	S(max_rtt, "us", 1, "largest RTT, which decays at each loss")                              \
	S(rate, "packets/s", 1, "achieved throughput, smoothed")                                   \
	S(max_rate, "packets/s", 1, "largest since the last loss")                                 \
	S(old_max_rate, "packets/s", 1, "largest before the last loss")

struct htcp_params {
	HTCP_PARAMS(CC_PARAM_FIELD)
};

struct htcp {
	struct htcp_params params;
	u64 last_cong;	   /* end of the last congestion, or its start while it lasts */
	u64 counted_since; /* when `counted` was zero */
	u64 credit;	   /* sum of acked * alpha that has not yet increased the window */
	u64 undo_last_cong;
	u32 undo_max_rtt;
	u32 undo_old_max_rate;
	u32 alpha;
	u32 min_rtt; /* 0: no sample yet */
	u32 max_rtt;
	u32 rate;
	u32 max_rate;
	u32 old_max_rate;
	u32 counted;	/* packets ACKed for the next measurement of `rate` */
	u32 pkts_acked; /* as in Linux: of the last ACK in Open */
	u8 beta;
	u8 undo_beta;
	u8 adaptive; /* a loss had nearly the rate of the one before */
	u8 undo_adaptive;
	u8 congested; /* in CWR, Recovery or Loss, and not undone */
};

/* alpha, beta and f are fixed point with seven bits. */
#define HTCP_ONE 128
#define HTCP_BETA_LEAST 64
#define HTCP_BETA_MOST 102

#define HTCP_SECOND_US 1000000
#define HTCP_DAY_MS 86400000u

CC_INLINE u32 htcp_round_up(const struct htcp *ca, u32 us)
{
	u32 jiffy = ca->params.jiffy_us;

	return jiffy ? (us + jiffy - 1) / jiffy * jiffy : us;
}

CC_INLINE u64 htcp_round_down(const struct htcp *ca, u64 us)
{
	u32 jiffy = ca->params.jiffy_us;

	return jiffy ? us / jiffy * jiffy : us;
}

CC_INLINE u64 htcp_now(const struct htcp *ca, const struct cc_connection *c)
{
	return htcp_round_down(ca, c->now_us);
}

/* Returns f of the part of D beyond a second. */
CC_INLINE u64 htcp_factor(u64 beyond_us)
{
	u64 ms = beyond_us / 1000;

	if (ms > HTCP_DAY_MS)
		ms = HTCP_DAY_MS;
	return HTCP_ONE + HTCP_ONE * 10 * ms / 1000 + HTCP_ONE / 4 * ms * ms / 1000000;
}

CC_INLINE u64 htcp_scaled(const struct htcp *ca, u64 factor)
{
	factor = factor * cc_clamp(ca->min_rtt, 10000, 200000) / 100000;
	return factor > HTCP_ONE ? factor : HTCP_ONE;
}

/* Returns f in whole numbers and jiffies. */
CC_INLINE u64 htcp_jiffies_factor(const struct htcp *ca, u64 beyond_us)
{
	u64 hz = HTCP_SECOND_US / ca->params.jiffy_us;
	u64 diff = beyond_us / ca->params.jiffy_us;

	return 1 + (10 * diff + diff / 2 * (diff / 2) / hz) / hz;
}

CC_INLINE u64 htcp_jiffies_scaled(const struct htcp *ca, u64 factor)
{
	u32 hz = HTCP_SECOND_US / ca->params.jiffy_us;
	u32 scale = (hz << 3) / (10 * (ca->min_rtt / ca->params.jiffy_us));

	factor = (factor << 3) / cc_clamp(scale, 4, 80);
	return factor ? factor : 1;
}

CC_INLINE u64 htcp_growth(const struct htcp *ca, u64 beyond_us)
{
	int scaling = ca->params.rtt_scaling && ca->min_rtt;
	u64 factor;

	if (ca->params.jiffy_us) {
		factor = htcp_jiffies_factor(ca, beyond_us);
		return HTCP_ONE * (scaling ? htcp_jiffies_scaled(ca, factor) : factor);
	}
	factor = htcp_factor(beyond_us);
	return scaling ? htcp_scaled(ca, factor) : factor;
}

CC_INLINE void htcp_alpha_update(struct htcp *ca, const struct cc_connection *c)
{
	u64 since = htcp_now(ca, c) - ca->last_cong;
	u64 beyond = since > HTCP_SECOND_US ? since - HTCP_SECOND_US : 0;
	u64 alpha = 2 * htcp_growth(ca, beyond) * (HTCP_ONE - ca->beta) / HTCP_ONE;

	ca->alpha = alpha < 0xffffffff ? alpha : 0xffffffff;
}

/* Whether the rates before this loss and before the last differ by more than a fifth. */
CC_INLINE int htcp_bandwidth_switched(const struct htcp *ca)
{
	u64 now = 5 * (u64)ca->max_rate, before = ca->old_max_rate;

	return ca->params.bandwidth_switch && (now < 4 * before || now > 6 * before);
}

CC_INLINE void htcp_beta_update(struct htcp *ca)
{
	int switched = htcp_bandwidth_switched(ca);
	int adaptive = ca->adaptive && ca->min_rtt > htcp_round_up(ca, 10000) && ca->max_rtt;

	ca->old_max_rate = ca->max_rate;
	ca->adaptive = !switched;
	ca->beta = HTCP_BETA_LEAST;
	if (!switched && adaptive && ca->params.adaptive_backoff)
		ca->beta = cc_clamp((u64)ca->min_rtt * HTCP_ONE / ca->max_rtt, HTCP_BETA_LEAST,
				    HTCP_BETA_MOST);
}

CC_INLINE void htcp_init(struct htcp *ca, struct cc_connection *c)
{
	ca->alpha = HTCP_ONE;
	ca->beta = HTCP_BETA_LEAST;
	ca->pkts_acked = 1;
	ca->last_cong = htcp_now(ca, c);
	ca->counted_since = ca->last_cong;
}

CC_INLINE void htcp_save(struct htcp *ca)
{
	ca->undo_max_rtt = ca->max_rtt;
	ca->undo_old_max_rate = ca->old_max_rate;
	ca->undo_beta = ca->beta;
	ca->undo_adaptive = ca->adaptive;
}

/* Lets max RTT decay, so that it follows a changed path. */
CC_INLINE void htcp_decay_max_rtt(struct htcp *ca)
{
	u64 over = ca->max_rtt > ca->min_rtt ? ca->max_rtt - ca->min_rtt : 0;

	if (ca->min_rtt && over)
		ca->max_rtt = ca->min_rtt + htcp_round_down(ca, over * 95 / 100);
}

CC_INLINE u32 htcp_ssthresh(struct htcp *ca, const struct cc_connection *c)
{
	htcp_save(ca);
	htcp_beta_update(ca);
	htcp_alpha_update(ca, c);
	ca->credit = 0;
	htcp_decay_max_rtt(ca);
	return cc_max((u64)c->cwnd * ca->beta / HTCP_ONE, 2);
}

/* Adds one packet for every cwnd * 128 of credit. */
CC_INLINE void htcp_apply_credit(struct htcp *ca, struct cc_connection *c, u32 acked)
{
	u64 price = (u64)cc_max(c->cwnd, 1) * HTCP_ONE;
	u64 more = ca->credit / price;

	if (more == 0)
		return;
	ca->credit -= more * price;
	if (more > acked) {
		more = acked;
		ca->credit = 0;
	}
	c->cwnd += more;
	htcp_alpha_update(ca, c);
}

CC_INLINE void htcp_jiffies_cong_avoid(struct htcp *ca, struct cc_connection *c)
{
	if ((u64)c->cwnd_cnt * ca->alpha / HTCP_ONE >= c->cwnd) {
		c->cwnd++;
		c->cwnd_cnt = 0;
		htcp_alpha_update(ca, c);
	} else {
		c->cwnd_cnt += ca->pkts_acked;
	}
	ca->pkts_acked = 1;
}

CC_INLINE void htcp_cong_avoid(struct htcp *ca, struct cc_connection *c, u32 acked)
{
	if (cc_in_slow_start(c)) {
		acked = cc_slow_start(c, acked);
		if (!acked || ca->params.jiffy_us)
			return;
	}
	if (ca->params.jiffy_us) {
		htcp_jiffies_cong_avoid(ca, c);
		return;
	}
	ca->credit += (u64)acked * ca->alpha;
	htcp_apply_credit(ca, c, acked);
}

CC_INLINE void htcp_measure_rtt(struct htcp *ca, const struct cc_connection *c, u32 rtt)
{
	if (!ca->min_rtt || rtt < ca->min_rtt)
		ca->min_rtt = rtt;
	if (c->state != CC_OPEN)
		return;
	ca->max_rtt = cc_max(ca->max_rtt, ca->min_rtt);
	/* A larger sample is probably a delayed ACK or a retransmission, and not a queue. */
	if (rtt > ca->max_rtt && rtt <= ca->max_rtt + htcp_round_up(ca, 20000))
		ca->max_rtt = rtt;
}

CC_INLINE void htcp_update_rate(struct htcp *ca, u64 now)
{
	u32 rate = (u64)ca->counted * HTCP_SECOND_US / (now - ca->counted_since);

	if ((now - ca->last_cong) / ca->min_rtt <= 3) {
		/* Packets before the loss do not count for the rate after it. */
		ca->rate = rate;
		ca->max_rate = rate;
		return;
	}
	ca->rate = (3 * (u64)ca->rate + rate) / 4;
	ca->max_rate = cc_max(ca->max_rate, ca->rate);
}

CC_INLINE void htcp_restart_count(struct htcp *ca, u64 now)
{
	ca->counted = 0;
	ca->counted_since = now;
}

/* Measures the rate over a window or a round trip, whichever is longer. */
CC_INLINE void htcp_measure_rate(struct htcp *ca, const struct cc_connection *c, u32 pkts_acked)
{
	u64 now = htcp_now(ca, c);

	if (c->state > CC_DISORDER) {
		htcp_restart_count(ca, now);
		return;
	}
	ca->counted += pkts_acked;
	if (ca->min_rtt && now - ca->counted_since >= ca->min_rtt &&
	    ca->counted + (u64)cc_max(ca->alpha / HTCP_ONE, 1) >= c->cwnd) {
		htcp_update_rate(ca, now);
		htcp_restart_count(ca, now);
	}
}

CC_INLINE void htcp_pkts_acked(struct htcp *ca, const struct cc_connection *c,
			       const struct cc_sample *sample)
{
	if (c->state == CC_OPEN)
		ca->pkts_acked = sample->pkts_acked;
	if (sample->rtt_us > 0)
		htcp_measure_rtt(ca, c, htcp_round_up(ca, sample->rtt_us));
	if (ca->params.bandwidth_switch)
		htcp_measure_rate(ca, c, sample->pkts_acked);
}

CC_INLINE void htcp_set_state(struct htcp *ca, const struct cc_connection *c, u8 state)
{
	if (state == CC_OPEN && ca->congested) {
		ca->last_cong = htcp_now(ca, c);
		ca->congested = 0;
	}
	if (state > CC_DISORDER) {
		if (!ca->congested || ca->params.jiffy_us)
			ca->undo_last_cong = ca->last_cong;
		ca->last_cong = htcp_now(ca, c);
		ca->congested = 1;
	}
}

CC_INLINE void htcp_restore(struct htcp *ca)
{
	ca->max_rtt = ca->undo_max_rtt;
	ca->old_max_rate = ca->undo_old_max_rate;
	ca->beta = ca->undo_beta;
	ca->adaptive = ca->undo_adaptive;
}

CC_INLINE u32 htcp_undo_cwnd(struct htcp *ca, const struct cc_connection *c)
{
	if (ca->congested) {
		ca->congested = 0;
		ca->last_cong = ca->undo_last_cong;
		if (!ca->params.jiffy_us) {
			htcp_restore(ca);
			htcp_alpha_update(ca, c);
		}
	}
	return cc_undo_cwnd(c);
}

#endif
