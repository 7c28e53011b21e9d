// SPDX-License-Identifier: GPL-2.0-only
/* Iterator that `longhaul cc watch` reads: one record for each socket with storage in a congestion
 * control's map, in any network namespace. It runs only when it is read. */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "ack_counts.h"
#include "cc.h"

char LICENSE[] SEC("license") = "GPL";

#define AF_INET 2

/* Layout that src/watch/mod.rs reads: the kernel's byte order, no padding. */
struct record {
	u64 pacing_rate; /* bytes a second; all ones: none */
	u64 bytes_acked;
	u64 own[CC_STATE_BYTES / 8];
	u32 netns;
	u32 tcp_state;
	u32 cwnd, ssthresh, srtt_us, mss, packets_out, total_retrans, ca_state;
	u16 family, local_port, remote_port, padding;
	u8 local[16], remote[16];
	char algorithm[16];
	u32 unused;
};

_Static_assert(sizeof(struct record) == 216, "src/watch.rs knows this size");

/* Identity of a connection, and its ACK counts. */
struct ack_record {
	u32 netns;
	u16 family, local_port, remote_port, padding;
	u8 local[16], remote[16];
	u32 unused;
	struct ack_counts counts;
};

CC_INLINE void addresses(struct record *to, const struct sock_common *from)
{
	to->family = from->skc_family;
	to->local_port = from->skc_num;
	to->remote_port = __builtin_bswap16(from->skc_dport);
	if (to->family == AF_INET) {
		__builtin_memcpy(to->local, (const void *)&from->skc_rcv_saddr, 4);
		__builtin_memcpy(to->remote, (const void *)&from->skc_daddr, 4);
	} else {
		BPF_CORE_READ_INTO(&to->local, from, skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&to->remote, from, skc_v6_daddr);
	}
}

CC_INLINE void windows(struct record *to, const struct tcp_sock *tp)
{
	to->cwnd = tp->snd_cwnd;
	to->ssthresh = tp->snd_ssthresh;
	to->srtt_us = tp->srtt_us >> 3;
	to->mss = tp->mss_cache;
	to->packets_out = tp->packets_out;
	to->total_retrans = tp->total_retrans;
	to->bytes_acked = tp->bytes_acked;
	to->ca_state = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
}

SEC("iter/bpf_sk_storage_map")
int watch(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct record record = {};
	struct sock *sk = ctx->sk;
	struct tcp_sock *tp;

	if (!sk || !ctx->value)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	addresses(&record, &sk->__sk_common);
	windows(&record, tp);
	record.tcp_state = sk->__sk_common.skc_state;
	record.pacing_rate = sk->sk_pacing_rate;
	record.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	BPF_CORE_READ_STR_INTO(&record.algorithm, tp, inet_conn.icsk_ca_ops, name);
	BPF_CORE_READ_INTO(&record.own, tp, inet_conn.icsk_ca_priv);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

SEC("iter/bpf_sk_storage_map")
int watch_acks(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct ack_counts *counts = ctx->value;
	struct ack_record record = {};
	struct record end = {};
	struct sock *sk = ctx->sk;

	if (!sk || !counts)
		return 0;
	addresses(&end, &sk->__sk_common);
	record.netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	record.family = end.family;
	record.local_port = end.local_port;
	record.remote_port = end.remote_port;
	__builtin_memcpy(record.local, end.local, sizeof(record.local));
	__builtin_memcpy(record.remote, end.remote, sizeof(record.remote));
	__builtin_memcpy(&record.counts, counts, sizeof(record.counts));
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
