// SPDX-License-Identifier: GPL-2.0-only
/*
 * Losses that are the same in every run. On interfaces called lossy0, counting from 1 since boot, the
 * forwarded IPv4 packets that came in with the ordinals in `at` are dropped; of those that go out
 * there, every pure ACK without SACK whose ordinal is no multiple of `keep_one_ack_in` is dropped.
 */
#include <linux/init.h>
#include <linux/ip.h>
#include <linux/module.h>
#include <linux/netfilter_ipv4.h>
#include <linux/tcp.h>
#include <net/net_namespace.h>

static unsigned int at[1024];
static unsigned int losses;
module_param_array(at, uint, &losses, 0644);
MODULE_PARM_DESC(at, "ordinals of the packets that are lost, ascending");

static unsigned int keep_one_ack_in = 1;
module_param(keep_one_ack_in, uint, 0644);
MODULE_PARM_DESC(keep_one_ack_in, "thinning of pure ACKs; 1 keeps all");

static unsigned int data_packets;
module_param(data_packets, uint, 0444);
MODULE_PARM_DESC(data_packets, "how many packets came in on lossy0");

static bool lossy(const struct net_device *device)
{
	return !strcmp(device->name, "lossy0");
}

static bool to_be_lost(unsigned int ordinal)
{
	static unsigned int next;

	if (next >= losses || at[next] != ordinal)
		return false;
	next++;
	return true;
}

/* Exactly the ACK flag, the timestamp option and nothing else: 20 bytes of IPv4, 32 of TCP. */
static bool pure_ack(const struct sk_buff *skb)
{
	const struct tcphdr *tcp = (const struct tcphdr *)(skb->data + sizeof(struct iphdr));

	return ip_hdr(skb)->protocol == IPPROTO_TCP && skb->len == 52 && tcp->doff == 8 &&
	       (tcp_flag_word(tcp) & htonl(0x00ff0000)) == TCP_FLAG_ACK;
}

static unsigned int lose(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	static unsigned int acks;

	if (lossy(state->in))
		return to_be_lost(++data_packets) ? NF_DROP : NF_ACCEPT;
	if (lossy(state->out) && pure_ack(skb))
		return ++acks % keep_one_ack_in ? NF_DROP : NF_ACCEPT;
	return NF_ACCEPT;
}

static const struct nf_hook_ops hook = {
	.hook = lose,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_FORWARD,
	.priority = NF_IP_PRI_FIRST,
};

static int __net_init watch_namespace(struct net *net)
{
	return nf_register_net_hook(net, &hook);
}

static void __net_exit leave_namespace(struct net *net)
{
	nf_unregister_net_hook(net, &hook);
}

static struct pernet_operations namespaces = {
	.init = watch_namespace,
	.exit = leave_namespace,
};

static int __init losses_init(void)
{
	return register_pernet_subsys(&namespaces);
}
late_initcall(losses_init);
