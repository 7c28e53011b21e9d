// SPDX-License-Identifier: GPL-2.0-only
/* A socket option by which a program gives one of its sockets parameters of its own: level
 * OWN_LEVEL, a number for each parameter (src/own_parameters.rs), the value a 32-bit number. It puts
 * them where the congestion control looks when a connection begins. It serves the cgroup that it is
 * attached to, whose every setsockopt(2) it sees. */
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

/* enum bpf_map_type and flags, include/uapi/linux/bpf.h */
enum bpf_map_type { BPF_MAP_TYPE_SK_STORAGE = 24 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_CLONE = 1 << 9, BPF_SK_STORAGE_GET_F_CREATE = 1 };

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

#define OWN_LEVEL 0x6c68
#define OWN_MAX 7
#define IPPROTO_TCP 6

/* As congestion_ops.h has it. */
struct lh_connection {
	u32 given;
	u32 params[OWN_MAX];
};

/* The congestion control's own map takes this one's place when it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct lh_connection);
} connections SEC(".maps");

/* struct bpf_sock and bpf_sockopt, include/uapi/linux/bpf.h: as far as they are read. */
struct bpf_sock {
	u32 bound_dev_if;
	u32 family;
	u32 type;
	u32 protocol;
};

struct bpf_sockopt {
	struct bpf_sock *sk;
	void *optval;
	void *optval_end;
	s32 level;
	s32 optname;
	s32 optlen;
	s32 retval;
};

/* Set when it is loaded: the number of the first parameter, how many there are, and their ranges. */
const volatile struct {
	u32 first;
	u32 count;
	u32 least[OWN_MAX];
	u32 most[OWN_MAX];
} options = { .count = 1 };

enum { REFUSED, DONE };

SEC("cgroup/setsockopt")
int own_parameters(struct bpf_sockopt *ctx)
{
	u32 at = (u32)ctx->optname - options.first;
	u32 *value = ctx->optval;
	struct lh_connection *own;

	/* Not ours: the next program's, or the kernel's. */
	if (ctx->level != OWN_LEVEL || at >= options.count || at >= OWN_MAX)
		return DONE;
	if (!ctx->sk || ctx->sk->protocol != IPPROTO_TCP)
		return REFUSED;
	if ((void *)(value + 1) > ctx->optval_end)
		return REFUSED;
	if (*value < options.least[at] || *value > options.most[at])
		return REFUSED;
	own = bpf_sk_storage_get(&connections, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!own)
		return REFUSED;
	own->params[at] = *value;
	own->given |= 1u << at;
	/* The kernel knows nothing of this option and is not asked. */
	ctx->optlen = -1;
	return DONE;
}
