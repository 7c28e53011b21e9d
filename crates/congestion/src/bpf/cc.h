/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Common base of the congestion controls: the connection that their arithmetic uses, and Linux's two
 * methods of window growth. Plain C: it becomes a BPF program in the kernel and a library under
 * simulated time.
 *
 * A congestion control NAME is one header, NAME_math.h, with
 *
 *   NAME_PARAMS(P)  its parameters: P(field, unit, default, least, most, description)
 *   NAME_STATE(S)   fields that `longhaul cc watch` shows: S(field, unit, divisor, description)
 *   struct NAME     a connection's state, at most CC_STATE_BYTES, whose first member is
 *                   `struct NAME_params params`
 *
 * and a function for each operation of `struct cc_algorithm` below: NAME_init, NAME_ssthresh,
 * NAME_cong_avoid, NAME_pkts_acked, NAME_set_state and NAME_undo_cwnd. One that paces
 * has NAME_pacing_rate too. It is listed in algorithms.h. Windows are packets of one MSS, times microseconds. */
#ifndef LH_CC_H
#define LH_CC_H

#include "types.h"

#define CC_INLINE static inline __attribute__((always_inline, unused))

/* Size of icsk_ca_priv (include/net/inet_connection_sock.h). */
#define CC_STATE_BYTES 104

/* Slow start without a limit (TCP_INFINITE_SSTHRESH, include/net/tcp.h). */
#define CC_INFINITE_SSTHRESH 0x7fffffff

/* enum tcp_ca_state, include/uapi/linux/tcp.h */
enum cc_state { CC_OPEN, CC_DISORDER, CC_CWR, CC_RECOVERY, CC_LOSS };

/* A connection. The first three may be changed. */
struct cc_connection {
	u32 cwnd;
	u32 cwnd_cnt;	/* ACKed packets that have not yet increased cwnd */
	u32 ssthresh;
	u32 prior_cwnd;	/* cwnd before the current reduction */
	u32 state;	/* enum cc_state */
	u32 srtt_us;	/* smoothed; 0: none yet */
	u32 mss;	/* bytes */
	u32 packets_out;
	u64 now_us;
};

/* Measurements of an ACK (struct ack_sample, include/net/tcp.h). */
struct cc_sample {
	u32 pkts_acked;
	s32 rtt_us;	/* negative: no sample */
	u32 in_flight;	/* packets out when the newest ACKed one was sent; 0: not known */
};

CC_INLINE u32 cc_min(u32 a, u32 b) { return a < b ? a : b; }
CC_INLINE u32 cc_max(u32 a, u32 b) { return a > b ? a : b; }
CC_INLINE u32 cc_clamp(u32 x, u32 least, u32 most) { return cc_min(cc_max(x, least), most); }

CC_INLINE int cc_in_slow_start(const struct cc_connection *c) { return c->cwnd < c->ssthresh; }

/* As tcp_slow_start (net/ipv4/tcp_cong.c): one packet for each ACKed one, up to ssthresh. Returns
 * the packets left for congestion avoidance. */
CC_INLINE u32 cc_slow_start(struct cc_connection *c, u32 acked)
{
	u32 cwnd = cc_min(c->cwnd + acked, c->ssthresh);

	acked -= cwnd - c->cwnd;
	c->cwnd = cwnd;
	return acked;
}

/* As tcp_cong_avoid_ai (net/ipv4/tcp_cong.c): one packet for every `per` ACKed ones. */
CC_INLINE void cc_additive_increase(struct cc_connection *c, u32 per, u32 acked)
{
	if (per == 0)
		per = 1;
	if (c->cwnd_cnt >= per) {
		c->cwnd_cnt = 0;
		c->cwnd++;
	}
	c->cwnd_cnt += acked;
	if (c->cwnd_cnt >= per) {
		u32 more = c->cwnd_cnt / per;

		c->cwnd_cnt -= more * per;
		c->cwnd += more;
	}
}

/* As tcp_reno_undo_cwnd: undoes a spurious reduction. */
CC_INLINE u32 cc_undo_cwnd(const struct cc_connection *c) { return cc_max(c->cwnd, c->prior_cwnd); }

#define CC_PARAM_FIELD(field, unit, initial, least, most, about) u32 field;
#define CC_PARAM_DEFAULT(field, unit, initial, least, most, about) .field = (initial),

#endif
