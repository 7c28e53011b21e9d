/* SPDX-License-Identifier: GPL-2.0-only */
/* Adapter from the kernel's connections to the arithmetic of NAME_math.h: struct tcp_congestion_ops,
 * whose operations read the connection, call the arithmetic and write the windows back. */
#ifndef LH_CONGESTION_OPS_H
#define LH_CONGESTION_OPS_H

#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "ack_counts.h"
#include "cc.h"
#include "connections.h"

char LICENSE[] SEC("license") = "GPL";

/* Storage of each connection whose ACKs are counted. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ack_counts);
} acks SEC(".maps");

/* src/loader/prepare.rs removes the operation unless ACKs are to be counted. */
_Static_assert(__builtin_offsetof(struct tcp_congestion_ops, in_ack_event) == 32, "loader/prepare.rs");

CC_INLINE struct tcp_sock *tcp_sk(struct sock *sk) { return (struct tcp_sock *)sk; }

/* Called when the number of an ACK has been applied (tcp_ack, net/ipv4/tcp_input.c). */
SEC("struct_ops")
void BPF_PROG(count_ack_op, struct sock *sk, u32 flags)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct ack_counts *counts =
		bpf_sk_storage_get(&acks, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (counts)
		ack_count(counts, tp->snd_una, tp->mss_cache, tp->tcp_mstamp);
}

CC_INLINE struct cc_connection cc_read(const struct tcp_sock *tp)
{
	return (struct cc_connection){
		.cwnd = tp->snd_cwnd,
		.cwnd_cnt = tp->snd_cwnd_cnt,
		.ssthresh = tp->snd_ssthresh,
		.prior_cwnd = tp->prior_cwnd,
		.state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state),
		.srtt_us = tp->srtt_us >> 3,
		.mss = tp->mss_cache,
		.packets_out = tp->packets_out,
		.now_us = tp->tcp_mstamp,
	};
}

CC_INLINE void cc_write(struct tcp_sock *tp, const struct cc_connection *c)
{
	tp->snd_cwnd = cc_clamp(c->cwnd, 1, tp->snd_cwnd_clamp);
	tp->snd_cwnd_cnt = c->cwnd_cnt;
	tp->snd_ssthresh = c->ssthresh;
}

/* tcp_is_cwnd_limited, include/net/tcp.h: an unused window does not grow. */
CC_INLINE int cc_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* The kernel's value is bytes in 32 bits: larger windows wrap, and are reported as unknown. */
CC_INLINE u32 cc_in_flight(const struct ack_sample *sample, const struct cc_connection *c)
{
	if (c->mss == 0 || (u64)c->cwnd * c->mss > 0xffffffff)
		return 0;
	return sample->in_flight / c->mss;
}

CC_INLINE void cc_pace(struct sock *sk, u64 rate)
{
	if (rate == 0)
		return;
	if (rate > sk->sk_max_pacing_rate)
		rate = sk->sk_max_pacing_rate;
	sk->sk_pacing_rate = rate;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

#define CC_GIVEN(field, unit, initial, least, most, about)                                         \
	if (own->given & (1u << given_at))                                                         \
		ca->params.field = cc_clamp(own->params[given_at], least, most);                   \
	given_at++;

#define CONGESTION_OPS(NAME, PARAMS) CONGESTION_OPS_AND(NAME, PARAMS)

/* For a NAME that has u64 NAME_pacing_rate(ca, c), bytes/s, 0 to leave it to the kernel. The kernel
 * computes a rate after each ACK (tcp_update_pacing_rate); this operation comes later, before each
 * transmission (tcp_tso_segs), and so overrides it. TCP's own timer paces: no fq is needed. */
#define PACED_CONGESTION_OPS(NAME, PARAMS)                                                         \
	SEC("struct_ops")                                                                          \
	u32 BPF_PROG(NAME##_min_tso_segs_op, struct sock *sk)                                      \
	{                                                                                          \
		struct cc_connection c = cc_read(tcp_sk(sk));                                      \
		const void *ca = tcp_sk(sk)->inet_conn.icsk_ca_priv;                               \
                                                                                                   \
		cc_pace(sk, NAME##_pacing_rate(ca, &c));                                           \
		return 1;                                                                          \
	}                                                                                          \
                                                                                                   \
	CONGESTION_OPS_AND(NAME, PARAMS, .min_tso_segs = (void *)NAME##_min_tso_segs_op, )

/* Common part of both, with further members of struct tcp_congestion_ops. */
#define CONGESTION_OPS_AND(NAME, PARAMS, ...)                                                      \
	_Static_assert(sizeof(struct NAME) <= CC_STATE_BYTES, "too large for icsk_ca_priv");       \
                                                                                                   \
	/* Only its type is used: readers of icsk_ca_priv find its members in the object's BTF. */ \
	const struct NAME NAME##_state = {};                                                       \
                                                                                                   \
	/* Parameters of connections without their own. Set at load time. */                      \
	volatile struct NAME##_params params = { PARAMS(CC_PARAM_DEFAULT) };                       \
                                                                                                   \
	CC_INLINE struct NAME *NAME##_of(struct sock *sk)                                          \
	{                                                                                          \
		return (struct NAME *)tcp_sk(sk)->inet_conn.icsk_ca_priv;                          \
	}                                                                                          \
                                                                                                   \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(NAME##_init_op, struct sock *sk)                                             \
	{                                                                                          \
		struct cc_connection c = cc_read(tcp_sk(sk));                                      \
		struct NAME *ca = NAME##_of(sk);                                                   \
		struct lh_connection *own;                                                         \
		u32 given_at = 0;                                                                  \
                                                                                                   \
		__builtin_memset(ca, 0, sizeof(*ca));                                              \
		__builtin_memcpy(&ca->params, (const void *)&params, sizeof(ca->params));          \
		own = bpf_sk_storage_get(&connections, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);        \
		if (own) {                                                                         \
			PARAMS(CC_GIVEN)                                                           \
		}                                                                                  \
		NAME##_init(ca, &c);                                                               \
		cc_write(tcp_sk(sk), &c);                                                          \
	}                                                                                          \
                                                                                                   \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(NAME##_release_op, struct sock *sk)                                          \
	{                                                                                          \
		bpf_sk_storage_delete(&connections, sk);                                           \
	}                                                                                          \
                                                                                                   \
	SEC("struct_ops")                                                                          \
	u32 BPF_PROG(NAME##_ssthresh_op, struct sock *sk)                                          \
	{                                                                                          \
		struct cc_connection c = cc_read(tcp_sk(sk));                                      \
                                                                                                   \
		return NAME##_ssthresh(NAME##_of(sk), &c);                                         \
	}                                                                                          \
                                                                                                   \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(NAME##_cong_avoid_op, struct sock *sk, u32 ack, u32 acked)                   \
	{                                                                                          \
		struct cc_connection c;                                                            \
                                                                                                   \
		if (!cc_limited(tcp_sk(sk)))                                                       \
			return;                                                                    \
		c = cc_read(tcp_sk(sk));                                                           \
		NAME##_cong_avoid(NAME##_of(sk), &c, acked);                                       \
		cc_write(tcp_sk(sk), &c);                                                          \
	}                                                                                          \
                                                                                                   \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(NAME##_pkts_acked_op, struct sock *sk, const struct ack_sample *sample)      \
	{                                                                                          \
		struct cc_connection c = cc_read(tcp_sk(sk));                                      \
		struct cc_sample measured = { sample->pkts_acked, sample->rtt_us,                  \
					      cc_in_flight(sample, &c) };                          \
                                                                                                   \
		NAME##_pkts_acked(NAME##_of(sk), &c, &measured);                                   \
	}                                                                                          \
                                                                                                   \
	SEC("struct_ops")                                                                          \
	void BPF_PROG(NAME##_set_state_op, struct sock *sk, u8 state)                              \
	{                                                                                          \
		struct cc_connection c = cc_read(tcp_sk(sk));                                      \
                                                                                                   \
		NAME##_set_state(NAME##_of(sk), &c, state);                                        \
	}                                                                                          \
                                                                                                   \
	SEC("struct_ops")                                                                          \
	u32 BPF_PROG(NAME##_undo_cwnd_op, struct sock *sk)                                         \
	{                                                                                          \
		struct cc_connection c = cc_read(tcp_sk(sk));                                      \
                                                                                                   \
		return NAME##_undo_cwnd(NAME##_of(sk), &c);                                        \
	}                                                                                          \
                                                                                                   \
	SEC(".struct_ops.link")                                                                    \
	struct tcp_congestion_ops lh_##NAME = {                                                    \
		.init = (void *)NAME##_init_op,                                                    \
		.release = (void *)NAME##_release_op,                                              \
		.ssthresh = (void *)NAME##_ssthresh_op,                                            \
		.cong_avoid = (void *)NAME##_cong_avoid_op,                                        \
		.in_ack_event = (void *)count_ack_op,                                              \
		.pkts_acked = (void *)NAME##_pkts_acked_op,                                        \
		.set_state = (void *)NAME##_set_state_op,                                          \
		.undo_cwnd = (void *)NAME##_undo_cwnd_op,                                          \
		.flags = TCP_CONG_NON_RESTRICTED,                                                  \
		__VA_ARGS__                                                                        \
		.name = "lh_" #NAME,                                                               \
	};

#endif
