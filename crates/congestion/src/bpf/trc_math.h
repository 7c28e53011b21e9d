/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* TRC-TCP (Transmission Rate Controlled TCP): Reno's windows, sent without bursts, so that
 * packets are sent near the rate that follows from the window.
 *
 * Source: K. Hiraki, M. Inaba, "Very high-speed wide area network infrastructure for scientific
 * research" (Data Reservoir, SC2003); M. Nakamura, M. Inaba, K. Hiraki, "End-node transmission rate
 * control kind to intermediate routers", PFLDnet 2004. It has two parts:
 *
 *   packet spacing    in slow start each ACK releases two packets. The first is sent at once, the second
 *                     half an expected ACK interval later. A window that is ACKed in one round trip
 *                     causes an ACK every RTT/cwnd, so packets are RTT/(2·cwnd) apart: a rate of
 *                     200 % of cwnd/RTT.
 *   IPG tuning        the inter-packet gap limits the sending rate.
 *
 * Differences from the paper: it delays each second packet by a timer; here all packets are spaced
 * evenly, also with merged ACKs. Its gap is the Ethernet card's, between frames, in bytes of
 * the wire; gap_ns is from the beginning of one packet to the beginning of the next, by TCP's own
 * timer, for this connection alone. After slow start the paper paces Reno only by the IPG;
 * here steady_percent applies.
 *
 * Differences from Linux's Reno with its pacing on: none with the default parameters, except
 * that a single packet may be sent alone (tcp_min_tso_segs is 2). The kernel decides how many packets
 * are sent together: about a millisecond's worth (tcp_tso_autosize), unless the device has a limit:
 * ip link set dev DEVICE gso_max_segs 1. */
#ifndef LH_TRC_MATH_H
#define LH_TRC_MATH_H

#include "cc.h"

#define TRC_PARAMS(P)                                                                              \
	P(rate_mbit, "Mbit/s", 0, 0, 1000000, "upper limit of the payload rate; 0: none")          \
	P(gap_ns, "ns", 0, 0, 1000000000, "minimum inter-packet gap; 0: none")                     \
	P(slow_start_percent, "%", 200, 100, 1000, "pacing rate in slow start, of cwnd/RTT")       \
	P(steady_percent, "%", 120, 100, 1000, "pacing rate after slow start, of cwnd/RTT")

#define TRC_STATE(S)

struct trc_params {
	TRC_PARAMS(CC_PARAM_FIELD)
};

struct trc {
	struct trc_params params;
};

CC_INLINE void trc_init(struct trc *ca, struct cc_connection *c) { (void)ca, (void)c; }

CC_INLINE u64 trc_slower(u64 a, u64 b) { return a < b ? a : b; }

/* Bytes/s that rate_mbit and gap_ns allow. */
CC_INLINE u64 trc_limit(const struct trc *ca, const struct cc_connection *c)
{
	u64 limit = ~0ull;

	if (ca->params.rate_mbit)
		limit = (u64)ca->params.rate_mbit * (1000000 / 8);
	if (ca->params.gap_ns)
		limit = trc_slower(limit, (u64)c->mss * 1000000000 / ca->params.gap_ns);
	return limit;
}

/* Bytes/s of `percent` of cwnd/RTT. */
CC_INLINE u64 trc_window_rate(const struct cc_connection *c, u32 percent)
{
	u64 packets = cc_min(cc_max(c->cwnd, c->packets_out), 1 << 27);

	return packets * ((u64)c->mss * percent * 10000 / c->srtt_us);
}

/* Bytes/s; 0 leaves it to the kernel. As in tcp_update_pacing_rate, slow start ends for this at half of
 * ssthresh: the last doubling is ACKed at the steady rate. */
CC_INLINE u64 trc_pacing_rate(const struct trc *ca, const struct cc_connection *c)
{
	u64 limit = trc_limit(ca, c);

	if (c->srtt_us == 0)
		return limit == ~0ull ? 0 : limit;
	return trc_slower(limit, trc_window_rate(c, c->cwnd < c->ssthresh / 2
							? ca->params.slow_start_percent
							: ca->params.steady_percent));
}

CC_INLINE u32 trc_ssthresh(struct trc *ca, const struct cc_connection *c)
{
	(void)ca;
	return cc_max(c->cwnd / 2, 2);
}

CC_INLINE void trc_cong_avoid(struct trc *ca, struct cc_connection *c, u32 acked)
{
	(void)ca;
	if (cc_in_slow_start(c))
		acked = cc_slow_start(c, acked);
	if (acked)
		cc_additive_increase(c, c->cwnd, acked);
}

CC_INLINE void trc_pkts_acked(struct trc *ca, const struct cc_connection *c,
			      const struct cc_sample *sample)
{
	(void)ca, (void)c, (void)sample;
}

CC_INLINE void trc_set_state(struct trc *ca, const struct cc_connection *c, u8 state)
{
	(void)ca, (void)c, (void)state;
}

CC_INLINE u32 trc_undo_cwnd(struct trc *ca, const struct cc_connection *c)
{
	(void)ca;
	return cc_undo_cwnd(c);
}

#endif
