/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* BIC: a binary search for the window at which the path was last full, then a slow search beyond it. Two
 * forms, which differ only in the unit of growth:
 *
 *   bic        by ACKs, as Linux did until 2020, and in 2.6.19.1, which the ACK paper measured
 *   bic_linux  by ACKed packets, as Linux does today
 *
 * Sources: L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control for Fast, Long Distance
 * Networks", INFOCOM 2004; net/ipv4/tcp_bic.c; J. Tamatsukuri et al., "Influence of TCP/IP
 * Acknowledge Packet receiving on Long Fat Network", whose n is our ack_shift: "the value used in
 * the shift that determines the ratio of data packets to ACKs", ACK_RATIO_SHIFT in tcp_bic.c. It sets
 * how long that ratio is averaged, 2^n ACKs, and how finely it is kept, in steps of 1/2^n packet.
 *
 * Both forms differ from the publication as Linux does: the window goes a quarter of the way to
 * last_max in each round trip (B = 4) and not half; at most 16 packets at once (Smax 32); near
 * last_max one packet in smooth_part/B = 5 round trips (Smin 0.01); a loss takes 205/1024 (β 1/8).
 *
 * Differences of bic_linux from Linux 6.18: none in its arithmetic, except that it is 64-bit where
 * Linux's wraps (windows beyond 2^28), and that HZ/32 is 31.25 ms whatever HZ is.
 *
 * Since 2020 Linux divides by packets per ACK although it no longer counts ACKs, so that it grows
 * `delayed_ack` times as fast as specified: twice with an ACK for two packets, 40 times behind
 * a receiver that merges segments (GRO). bic_linux does the same, for comparison.
 *
 * Differences of bic from Linux 2.6.19.1: slow start counts packets, not ACKs (RFC 3465), or merged
 * ACKs would prevent it from ending; it stops at ssthresh and not one above; initial_ssthresh is 0
 * as it has been since 2.6.21, where 2.6.19 had 100 (give 100 to see the paper's 24 s of growth);
 * undo goes back to the window before the loss, not to last_max. One packet after cnt + 1 ACKs, not
 * cnt, is Linux 2.6.19's. */
#ifndef LH_BIC_MATH_H
#define LH_BIC_MATH_H

#include "cc.h"

#define BIC_PARAMS(P)                                                                              \
	P(ack_shift, "", 4, 1, 6, "packets per ACK are averaged over 2^ack_shift ACKs")            \
	P(max_increment, "packets", 16, 2, 1000, "largest growth in a round trip")                 \
	P(low_window, "packets", 14, 2, 1000, "up to this window it grows as Reno")                \
	P(beta, "1/1024", 819, 512, 1023, "window after a loss, as a share of the one before")     \
	P(smooth_part, "", 20, 4, 200, "near last_max: 1 packet in smooth_part/4 RTTs")            \
	P(initial_ssthresh, "packets", 0, 0, 1000000, "end of the first slow start; 0: the first loss") \
	P(fast_convergence, "", 1, 0, 1, "a loss below last_max lowers the next target")

#define BIC_STATE(S)                                                                               \
	S(last_max, "packets", 1, "window before the last loss, the target of the search; 0: none") \
	S(cnt, "ACKs", 1, "ACKs for a growth by one; bic_linux: packets")                          \
	S(delayed_ack, "1/2^ack_shift", 1, "packets per ACK, averaged")

struct bic_params {
	BIC_PARAMS(CC_PARAM_FIELD)
};

struct bic {
	struct bic_params params;
	u32 last_max;
	u32 cnt;
	u32 delayed_ack;	/* packets per ACK << ack_shift */
	u32 cnt_cwnd;		/* cnt was computed for this window */
	u64 cnt_us;		/* and at this time */
};

#define BIC_B 4			/* a step is 1/B of the distance */
#define BIC_NO_LOSS_CNT 20	/* before the first loss: 5 % a round trip at least */
#define BIC_REFRESH_US 31250	/* cnt is valid this long for one window; HZ/32 */

CC_INLINE u32 bic_shift(const struct bic *ca) { return ca->params.ack_shift & 31; }

CC_INLINE void bic_reset(struct bic *ca)
{
	ca->cnt = 0;
	ca->last_max = 0;
	ca->cnt_cwnd = 0;
	ca->cnt_us = 0;
	ca->delayed_ack = 2u << bic_shift(ca);
}

/* One packet in smooth_part/B round trips. */
CC_INLINE u64 bic_smooth(const struct bic *ca, u32 cwnd)
{
	return (u64)cwnd * ca->params.smooth_part / BIC_B;
}

/* Below last_max: additive while it is far, then the binary search, then slow growth up to it. */
CC_INLINE u64 bic_search_up(const struct bic *ca, u32 cwnd)
{
	u32 distance = (ca->last_max - cwnd) / BIC_B;

	if (distance > ca->params.max_increment)
		return cwnd / ca->params.max_increment;
	if (distance <= 1)
		return bic_smooth(ca, cwnd);
	return cwnd / distance;
}

/* From last_max on: slow growth, faster with the distance, then additive. */
CC_INLINE u64 bic_probe_max(const struct bic *ca, u32 cwnd)
{
	u32 distance = cwnd - ca->last_max;

	if (distance < BIC_B)
		return bic_smooth(ca, cwnd);
	if (distance < ca->params.max_increment * (BIC_B - 1))
		return (u64)cwnd * (BIC_B - 1) / distance;
	return cwnd / ca->params.max_increment;
}

/* ACKed packets for one packet of growth, unless the window is small. */
CC_INLINE u64 bic_packets(const struct bic *ca, u32 cwnd)
{
	u64 packets = cwnd < ca->last_max ? bic_search_up(ca, cwnd) : bic_probe_max(ca, cwnd);

	if (ca->last_max == 0 && packets > BIC_NO_LOSS_CNT)
		return BIC_NO_LOSS_CNT;
	return packets;
}

CC_INLINE u32 bic_cnt(const struct bic *ca, u32 cwnd)
{
	u64 acks;

	if (cwnd <= ca->params.low_window)
		return cwnd;
	acks = (bic_packets(ca, cwnd) << bic_shift(ca)) / cc_max(ca->delayed_ack, 1);
	if (acks > 0xffffffff)
		return 0xffffffff;
	return cc_max(acks, 1);
}

CC_INLINE void bic_update(struct bic *ca, const struct cc_connection *c)
{
	if (ca->cnt_cwnd == c->cwnd && c->now_us - ca->cnt_us <= BIC_REFRESH_US)
		return;
	ca->cnt_cwnd = c->cwnd;
	ca->cnt_us = c->now_us;
	ca->cnt = bic_cnt(ca, c->cwnd);
}

CC_INLINE void bic_init(struct bic *ca, struct cc_connection *c)
{
	bic_reset(ca);
	if (ca->params.initial_ssthresh)
		c->ssthresh = ca->params.initial_ssthresh;
}

/* Target of the next search: this window, or, if this loss came below the last target, half way between
 * this window and the reduced one (fast convergence). */
CC_INLINE u32 bic_next_max(const struct bic *ca, u32 cwnd)
{
	if (cwnd < ca->last_max && ca->params.fast_convergence)
		return (u64)cwnd * (1024 + ca->params.beta) / 2048;
	return cwnd;
}

CC_INLINE u32 bic_ssthresh(struct bic *ca, const struct cc_connection *c)
{
	ca->last_max = bic_next_max(ca, c->cwnd);
	if (c->cwnd <= ca->params.low_window)
		return cc_max(c->cwnd / 2, 2);
	return cc_max((u64)c->cwnd * ca->params.beta / 1024, 2);
}

CC_INLINE void bic_cong_avoid(struct bic *ca, struct cc_connection *c, u32 acked)
{
	if (cc_in_slow_start(c)) {
		cc_slow_start(c, acked);
		return;
	}
	bic_update(ca, c);
	if (c->cwnd_cnt >= ca->cnt) {
		c->cwnd++;
		c->cwnd_cnt = 0;
	} else {
		c->cwnd_cnt++;
	}
}

CC_INLINE void bic_pkts_acked(struct bic *ca, const struct cc_connection *c,
			      const struct cc_sample *sample)
{
	if (c->state == CC_OPEN)
		ca->delayed_ack += sample->pkts_acked - (ca->delayed_ack >> bic_shift(ca));
}

CC_INLINE void bic_set_state(struct bic *ca, const struct cc_connection *c, u8 state)
{
	(void)c;
	if (state == CC_LOSS)
		bic_reset(ca);
}

CC_INLINE u32 bic_undo_cwnd(struct bic *ca, const struct cc_connection *c)
{
	(void)ca;
	return cc_undo_cwnd(c);
}

/* Operations that bic_linux shares with bic. */
#define BIC_LINUX_PARAMS BIC_PARAMS
#define BIC_LINUX_STATE BIC_STATE
#define bic_linux_params bic_params

struct bic_linux {
	union {
		struct bic bic;
		struct { /* names in `watch` */
			struct bic_params params;
			u32 last_max;
			u32 cnt;
			u32 delayed_ack;
		};
	};
};

CC_INLINE void bic_linux_init(struct bic_linux *ca, struct cc_connection *c)
{
	bic_init(&ca->bic, c);
}

CC_INLINE u32 bic_linux_ssthresh(struct bic_linux *ca, const struct cc_connection *c)
{
	return bic_ssthresh(&ca->bic, c);
}

CC_INLINE void bic_linux_cong_avoid(struct bic_linux *ca, struct cc_connection *c, u32 acked)
{
	if (cc_in_slow_start(c))
		acked = cc_slow_start(c, acked);
	if (!acked)
		return;
	bic_update(&ca->bic, c);
	cc_additive_increase(c, ca->cnt, acked);
}

CC_INLINE void bic_linux_pkts_acked(struct bic_linux *ca, const struct cc_connection *c,
				    const struct cc_sample *sample)
{
	bic_pkts_acked(&ca->bic, c, sample);
}

CC_INLINE void bic_linux_set_state(struct bic_linux *ca, const struct cc_connection *c, u8 state)
{
	bic_set_state(&ca->bic, c, state);
}

CC_INLINE u32 bic_linux_undo_cwnd(struct bic_linux *ca, const struct cc_connection *c)
{
	return bic_undo_cwnd(&ca->bic, c);
}

#endif
