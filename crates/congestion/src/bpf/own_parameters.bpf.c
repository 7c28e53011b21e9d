// SPDX-License-Identifier: GPL-2.0-only
/* A socket option by which a program gives one of its sockets parameters of its own: level
 * OWN_LEVEL, a number for each parameter (src/socket_parameters.rs), the value a 32-bit number. It puts
 * them where the congestion control looks when a connection begins. It serves the cgroup that it is
 * attached to, whose every setsockopt(2) it sees. */
#include "connections.h"
#include "contexts.h"

char LICENSE[] SEC("license") = "GPL";

#define OWN_LEVEL 0x6c68
#define IPPROTO_TCP 6

/* As include/uapi/linux/bpf.h has it. */
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
