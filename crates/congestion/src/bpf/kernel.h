/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's types, with the members that our programs use. Offsets are the running kernel's: libbpf
 * relocates each access by name (CO-RE), so that only names and kinds matter here. */
#ifndef LH_KERNEL_H
#define LH_KERNEL_H

#include "types.h"

typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s8 __s8;
typedef s16 __s16;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;

/* bpf_helpers.h needs these; enum bpf_map_type of include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_CLONE = 1 << 9,
	BPF_SK_STORAGE_GET_F_CREATE = 1,
};

/* enum tcp_ca_state, include/uapi/linux/tcp.h */
enum tcp_ca_state {
	TCP_CA_Open = 0,
	TCP_CA_Disorder = 1,
	TCP_CA_CWR = 2,
	TCP_CA_Recovery = 3,
	TCP_CA_Loss = 4,
};

/* include/net/tcp.h */
enum {
	TCP_CONG_NON_RESTRICTED = 1,
	TCP_CONG_NEEDS_ECN = 2,
};

/* enum sk_pacing, include/net/sock.h */
enum {
	SK_PACING_NONE = 0,
	SK_PACING_NEEDED = 1,
};

/* include/uapi/linux/time.h */
#define CLOCK_MONOTONIC 1

/* Members of map values, known to the kernel by these names. */
struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_spin_lock {
	u32 val;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	u8 s6_addr[16];
};

struct sock_common {
	unsigned short skc_family;
	int skc_rcv_saddr;
	int skc_daddr;
	unsigned short skc_num;
	unsigned short skc_dport;
	unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
	u8 icsk_ca_state : 5;
	struct {
		u16 rcv_mss;
	} icsk_ack;
	u64 icsk_ca_priv[13];
};

struct tcp_options_received {
	u16 sack_ok : 3;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	u32 snd_una;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 max_packets_out;
	u32 packets_out;
	u32 srtt_us;
	u32 mss_cache;
	u64 tcp_mstamp;
	u64 bytes_acked;
	u32 total_retrans;
	u32 is_cwnd_limited : 1;
};

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
};

struct rate_sample;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

/* Context of the iterator over a namespace's TCP sockets (net/ipv4/tcp_ipv4.c). */
struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

/* Context of the iterator over socket storage (net/core/bpf_sk_storage.c); no socket: the end. */
struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct sock *sk;
	void *value;
};

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, int event);
	void (*in_ack_event)(struct sock *sk, u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 (*sndbuf_expand)(struct sock *sk);
	char name[16];
	void *owner;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	u32 flags;
};

#pragma clang attribute pop

#endif
