/* SPDX-License-Identifier: GPL-2.0-only */
/* Contexts of cgroup programs, as in include/uapi/linux/bpf.h: the verifier identifies their members by
 * offsets, which never change. Members up to the last one used. */
#ifndef LH_CONTEXTS_H
#define LH_CONTEXTS_H

#include "kernel.h"

struct bpf_sock {
	u32 bound_dev_if;
	u32 family;
	u32 type;
	u32 protocol;
};

/* A packet, from its IP header on. */
struct __sk_buff {
	u32 len;
	u32 until_priority[7];
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 until_sk[31];
	struct bpf_sock *sk;
};

_Static_assert(__builtin_offsetof(struct __sk_buff, priority) == 32, "as in bpf.h");
_Static_assert(__builtin_offsetof(struct __sk_buff, sk) == 168, "as in bpf.h");

/* Return values of a program for a packet. */
enum {
	PACKET_STAYS = 0, /* with -EPERM for the sender */
	PACKET_GOES = 1,
};

struct bpf_sock_addr {
	u32 user_family;
	u32 user_ip4;
	u32 user_ip6[4];
	u32 user_port;
	u32 family;
	u32 type;
};

struct bpf_sock_ops {
	u32 op;
	u32 args[4];
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
	u32 is_fullsock;
	u32 snd_cwnd;
	u32 srtt_us;
	u32 bpf_sock_ops_cb_flags;
	u32 state;
	u32 rtt_min;
	u32 snd_ssthresh;
	u32 rcv_nxt;
	u32 snd_nxt;
	u32 snd_una;
	u32 mss_cache;
	u32 ecn_flags;
	u32 rate_delivered;
	u32 rate_interval_us;
	u32 packets_out;
	u32 retrans_out;
	u32 total_retrans;
	u32 segs_in;
	u32 data_segs_in;
	u32 segs_out;
	u32 data_segs_out;
	u32 lost_out;
	u32 sacked_out;
	u32 sk_txhash;
	u64 bytes_received;
	u64 bytes_acked;
	struct bpf_sock *sk;
};

_Static_assert(__builtin_offsetof(struct bpf_sock_ops, bpf_sock_ops_cb_flags) == 84, "as in bpf.h");
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, data_segs_out) == 152, "as in bpf.h");
_Static_assert(__builtin_offsetof(struct bpf_sock_ops, sk) == 184, "as in bpf.h");

/* The events of a TCP connection that programs request, and the flags that request them. */
enum {
	BPF_SOCK_OPS_TCP_CONNECT_CB = 3,
	BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_NEEDS_ECN = 6,
	BPF_SOCK_OPS_STATE_CB = 10,
	BPF_SOCK_OPS_TCP_LISTEN_CB = 11,
	BPF_SOCK_OPS_HDR_OPT_LEN_CB = 14,

	BPF_SOCK_OPS_STATE_CB_FLAG = 1 << 2,
	BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG = 1 << 6,
};

/* Levels and options of setsockopt(2), of include/uapi/asm-generic/socket.h, linux/in.h, in6.h and
 * tcp.h, and those of linux/bpf.h that only programs can set. */
enum {
	SOL_IP = 0,
	SOL_SOCKET = 1,
	SOL_TCP = 6,
	SOL_IPV6 = 41,

	SO_SNDBUF = 7,
	SO_RCVBUF = 8,
	SO_KEEPALIVE = 9,
	SO_MAX_PACING_RATE = 47,
	IP_TOS = 1,
	IPV6_TCLASS = 67,
	TCP_MAXSEG = 2,
	TCP_KEEPIDLE = 4,
	TCP_KEEPINTVL = 5,
	TCP_KEEPCNT = 6,
	TCP_CONGESTION = 13,
	TCP_USER_TIMEOUT = 18,
	TCP_NOTSENT_LOWAT = 25,
	TCP_BPF_IW = 1001,
	TCP_BPF_SNDCWND_CLAMP = 1002,

	AF_INET6 = 10,
	SOCK_STREAM = 1,
	TCP_CLOSE = 7,
};

#endif
