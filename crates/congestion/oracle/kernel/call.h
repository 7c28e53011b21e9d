/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One call of the TCP stack to a congestion control, as in /proc/calls: host byte order, no padding.
 * CALL in condense.py has the same layout.
 */
#ifndef RECORDER_CALL_H
#define RECORDER_CALL_H

#include <linux/types.h>

#define PRIVATE_WORDS 16

enum call_kind {
	CALL_INIT = 'i',
	CALL_ACK = 'k',		/* in_ack_event: an ACK arrives in a state other than Open */
	CALL_PKTS_ACKED = 'p',	/* arg: packets newly acknowledged; rtt_us, sample_in_flight */
	CALL_CONG_AVOID = 'a',	/* arg: packets newly delivered */
	CALL_SSTHRESH = 't',	/* arg: the returned value */
	CALL_SET_STATE = 's',	/* arg: the new TCP_CA_… state */
	CALL_CWND_EVENT = 'e',	/* arg: CA_EVENT_… */
	CALL_UNDO = 'u',	/* arg: the returned value */
	CALL_RELEASE = 'r',
};

struct call {
	__u64 time_ns;		/* CLOCK_MONOTONIC */
	__u32 jiffies;		/* tcp_jiffies32 */
	__u8 kind;
	__u8 ca_state;		/* TCP_CA_… before the call */
	__u8 cwnd_limited;	/* tcp_is_cwnd_limited() before the call */
	__u8 reserved;
	__u32 arg;
	__s32 rtt_us;		/* -1 if the call has none */
	__u32 sample_in_flight;
	__u32 cwnd_before;
	__u32 cnt_before;
	__u32 ssthresh_before;
	__u32 cwnd;
	__u32 cnt;
	__u32 ssthresh;
	__u32 srtt_us;		/* smoothed, in µs (the kernel keeps eight times that) */
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 delivered;
	__u32 una;		/* bytes from the initial sequence number: acknowledged … */
	__u32 nxt;		/* … and sent */
	__u32 total_retrans;
	__u32 private[PRIVATE_WORDS]; /* icsk_ca_priv after the call */
};

#endif
