/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* HighSpeed TCP: the larger the window, the faster it grows each round trip, and the less a loss
 * reduces it.
 *
 * Source: RFC 3649. With W = 38, W1 = 83000, p(w) = 0.078/w^1.2 and High_Decrease = 0.1:
 *   b(w) = 0.5 - 0.4 (ln w - ln W)/(ln W1 - ln W)      part of the window that a loss takes
 *   a(w) = w^2 p(w) 2 b(w)/(2 - b(w))                  packets more each round trip
 * as in the table of appendix B, in hstcp_table.h: a row begins where a(w) has grown by one.
 *
 * Differences from the RFC:
 * - above the last row (94717 packets) a and b stay at 73 and 0.09: beyond it the formula's
 *   b reaches zero at 567000 packets, which 20 Gbit/s over 350 ms needs.
 * - a loss in slow start takes half, as RFC 5681 has it: the window has just doubled, and a
 *   window smaller by only a tenth would cause losses again. The RFC does not specify it.
 * - b is stored in 1/256, rounded down, as in Linux.
 *
 * Differences from Linux (net/ipv4/tcp_highspeed.c):
 * - the table is a floor, as in the RFC: a(w) is that of the last row at or below w. Linux takes the
 *   next row above, so that a is 2 from 39 packets on rather than from 118, and its table ends one
 *   row earlier, at 89053. `linux_table=1` behaves like Linux.
 * - b is looked up when the loss is detected; Linux uses the row that the last ACK of congestion
 *   avoidance left, so that a first loss in slow start takes half and a later one takes that row's.
 *   `linux_table=1` does so, too.
 * - a packet counts when it is ACKed; Linux counts ACKs, and so grows half as fast where every second
 *   packet is ACKed and forty times slower where a receiver coalesces. What slow start leaves of an
 *   ACK counts, too. `count_acks=1` behaves like Linux.
 * - the product of window and b has 64 bits. Linux caps the window at 2^25 packets instead. */
#ifndef LH_HSTCP_MATH_H
#define LH_HSTCP_MATH_H

#include "cc.h"
#include "hstcp_table.h"

#define HSTCP_PARAMS(P)                                                                            \
	P(linux_table, "", 0, 0, 1, "1: rows and their use as in Linux; 0: as in RFC 3649")        \
	P(count_acks, "", 0, 0, 1, "1: an ACK counts as one packet, as in Linux")

#define HSTCP_STATE(S)                                                                             \
	S(a, "packets", 1, "growth each round trip")                                               \
	S(b, "", 256, "part of the window that a loss removes")

struct hstcp_params {
	HSTCP_PARAMS(CC_PARAM_FIELD)
};

struct hstcp {
	struct hstcp_params params;
	u32 a;
	u32 b; /* in 1/256 */
};

#define HSTCP_HALF 128

/* b of the row that begins at `cwnd`. A row's number, from 1, is its a. */
struct hstcp_row {
	u32 cwnd;
	u32 b;
};

#define HSTCP_ROW(cwnd, b) { cwnd, b },
static const struct hstcp_row hstcp_rows[] = { HSTCP_TABLE(HSTCP_ROW) };
#define HSTCP_ROWS (sizeof(hstcp_rows) / sizeof(hstcp_rows[0]))

/* Returns the number of rows that begin below `cwnd`. */
CC_INLINE u32 hstcp_rows_below(u32 cwnd)
{
	u32 rows = 0, step;

	for (step = 64; step; step >>= 1) {
		u32 more = rows + step;

		if (more <= HSTCP_ROWS && hstcp_rows[more - 1].cwnd < cwnd)
			rows = more;
	}
	return rows;
}

/* Returns b in 1/256. The upper bound is tested after the subtraction, where the verifier of Linux 6.1
 * no longer knows that `a` was 1 or more. */
CC_INLINE u32 hstcp_b(u32 a)
{
	u32 row = cc_max(a, 1) - 1;

	return hstcp_rows[cc_min(row, HSTCP_ROWS - 1)].b;
}

/* Returns `value` via the state. The kernel's verifier follows every path through the table with all that
 * the comparisons imply about a number. It knows nothing of a number from the state, so the paths merge
 * again. */
CC_INLINE u32 hstcp_unknown(u32 *member, u32 value)
{
	*(volatile u32 *)member = value;
	return *(volatile u32 *)member;
}

CC_INLINE void hstcp_look_up(struct hstcp *ca, u32 cwnd)
{
	u32 ceiling = ca->params.linux_table;
	u32 sought = hstcp_unknown(&ca->a, ceiling ? cwnd : cwnd + 1);
	u32 rows = hstcp_unknown(&ca->a, hstcp_rows_below(sought));

	ca->a = ceiling ? cc_min(rows + 1, HSTCP_ROWS - 1) : cc_max(rows, 1);
	ca->b = hstcp_b(ca->a);
}

CC_INLINE void hstcp_init(struct hstcp *ca, struct cc_connection *c)
{
	(void)c;
	ca->a = 1;
	ca->b = HSTCP_HALF;
}

CC_INLINE u32 hstcp_ssthresh(struct hstcp *ca, const struct cc_connection *c)
{
	if (ca->params.linux_table)
		ca->b = hstcp_b(ca->a);
	else if (cc_in_slow_start(c))
		ca->b = HSTCP_HALF;
	else
		hstcp_look_up(ca, c->cwnd);
	return cc_max(c->cwnd - (u32)(((u64)c->cwnd * ca->b) >> 8), 2);
}

/* RFC 3649, section 5: w <- w + a(w)/w for each packet. The remainder below a packet is in
 * cwnd_cnt, in packets times a. */
CC_INLINE void hstcp_cong_avoid(struct hstcp *ca, struct cc_connection *c, u32 acked)
{
	u64 credit;
	u32 more;

	if (cc_in_slow_start(c)) {
		acked = cc_slow_start(c, acked);
		if (!acked || ca->params.count_acks)
			return;
	}
	hstcp_look_up(ca, c->cwnd);
	credit = c->cwnd_cnt + (u64)ca->a * (ca->params.count_acks ? 1 : acked);
	more = credit / cc_max(c->cwnd, 1);
	c->cwnd_cnt = credit - (u64)more * c->cwnd;
	c->cwnd += more;
}

CC_INLINE void hstcp_pkts_acked(struct hstcp *ca, const struct cc_connection *c,
				const struct cc_sample *sample)
{
	(void)ca, (void)c, (void)sample;
}

CC_INLINE void hstcp_set_state(struct hstcp *ca, const struct cc_connection *c, u8 state)
{
	(void)ca, (void)c, (void)state;
}

CC_INLINE u32 hstcp_undo_cwnd(struct hstcp *ca, const struct cc_connection *c)
{
	(void)ca;
	return cc_undo_cwnd(c);
}

#endif
