/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Scalable TCP: the window grows by a packet for every hundred ACKed, and shrinks by an eighth at a
 * loss, so that the recovery time does not depend on the window.
 *
 * Source: T. Kelly, "Scalable TCP: improving performance in highspeed wide area networks", 2003:
 * a = 0.01, b = 0.125.
 *
 * Differences from Linux (net/ipv4/tcp_scalable.c, since 2020): none with ai = 100 and md_shift = 3.
 * Before 2020 Linux counted 50 ACKs a packet, which with delayed ACKs is Kelly's hundred packets:
 * ai = 50 is for comparison with that. Kelly grows by 0.01 an ACK for any window. Linux, and this code,
 * grow by one packet a window where the window is below `ai`, as Reno does. */
#ifndef LH_SCALABLE_MATH_H
#define LH_SCALABLE_MATH_H

#include "cc.h"

#define SCALABLE_PARAMS(P)                                                                         \
	P(ai, "packets", 100, 1, 10000, "ACKed packets for a growth by one")                       \
	P(md_shift, "", 3, 1, 7, "a loss reduces the window by 1/2^md_shift")

#define SCALABLE_STATE(S)

struct scalable_params {
	SCALABLE_PARAMS(CC_PARAM_FIELD)
};

struct scalable {
	struct scalable_params params;
};

CC_INLINE void scalable_init(struct scalable *ca, struct cc_connection *c) { (void)ca, (void)c; }

CC_INLINE u32 scalable_ssthresh(struct scalable *ca, const struct cc_connection *c)
{
	return cc_max(c->cwnd - (c->cwnd >> (ca->params.md_shift & 31)), 2);
}

CC_INLINE void scalable_cong_avoid(struct scalable *ca, struct cc_connection *c, u32 acked)
{
	if (cc_in_slow_start(c))
		acked = cc_slow_start(c, acked);
	if (acked)
		cc_additive_increase(c, cc_min(c->cwnd, ca->params.ai), acked);
}

CC_INLINE void scalable_pkts_acked(struct scalable *ca, const struct cc_connection *c,
				   const struct cc_sample *sample)
{
	(void)ca, (void)c, (void)sample;
}

CC_INLINE void scalable_set_state(struct scalable *ca, const struct cc_connection *c, u8 state)
{
	(void)ca, (void)c, (void)state;
}

CC_INLINE u32 scalable_undo_cwnd(struct scalable *ca, const struct cc_connection *c)
{
	(void)ca;
	return cc_undo_cwnd(c);
}

#endif
