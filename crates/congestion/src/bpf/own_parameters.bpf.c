// SPDX-License-Identifier: GPL-2.0-only
/* A socket option for parameters of a single socket: level OWN_LEVEL, an option number for each
 * parameter (src/socket_parameters.rs), and a 32-bit value. It stores them where the congestion control
 * reads them when a connection begins. The program runs for every setsockopt(2) of the cgroup to which
 * it is attached. */
#include "connections.h"
#include "contexts.h"

char LICENSE[] SEC("license") = "GPL";

#define OWN_LEVEL 0x6c68
#define IPPROTO_TCP 6

/* As in include/uapi/linux/bpf.h. */
struct bpf_sockopt {
	struct bpf_sock *sk;
	void *optval;
	void *optval_end;
	s32 level;
	s32 optname;
	s32 optlen;
	s32 retval;
};

/* Set at load time: the first parameter's option number, the number of parameters, and their ranges. */
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

	/* Another option: for the next program, or the kernel. */
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
	/* The kernel does not know this option, so it is skipped. */
	ctx->optlen = -1;
	return DONE;
}
