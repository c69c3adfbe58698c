/*
 * Messages to and from ranks on other hosts, in their format on the wire: each has a head with its number, and they are
 * handled in the order of the numbers. A message that arrives out of order, or finds no room, is held. A short message
 * is sent without a completion of the core provider; whether it has arrived is known from the peer's next one, or from
 * the answer to a question.
 */
#include <sys/socket.h>

#include "remote/core_ep.h"
#include "tune.h"

int ivs_wire_post(struct core_ep *ce, struct buffer *b)
{
	return (int) fi_recv(ce->ep, b->data, sizeof(b->data), ce->mr ? fi_mr_desc(ce->mr) : NULL, FI_ADDR_UNSPEC,
			     &b->op.context);
}

/*
 * Asks whether all earlier messages have arrived, by a write of no bytes, to no address: the peer's device answers it
 * in order, and its program does not see it. A message might arrive while the program closes its endpoint, which
 * libfabric 1.17's ofi_rxm over verbs does not survive.
 */
ssize_t ivs_wire_ask(struct ivs_peer *peer)
{
	struct core_ep *ce = peer->ep->core;
	struct buffer *b = ce->free;
	struct fi_rma_iov nowhere = { 0 };
	struct iovec nothing = { 0 };
	struct fi_msg_rma m = {
		.msg_iov = &nothing, .iov_count = 1, .addr = peer->core.addr, .rma_iov = &nowhere, .rma_iov_count = 1
	};
	ssize_t ret;

	if (!b)
		return -FI_EAGAIN;
	nothing.iov_base = b->data;
	m.context = &b->op.context;
	ret = fi_writemsg(ce->ep, &m, FI_INJECT | FI_COMPLETION);
	if (ret)
		return ret;
	ce->sending++;
	ce->free = b->next;
	b->peer = peer;
	b->op.kind = OP_ASKED;
	b->upto = peer->core.sent;
	peer->core.asked = true;
	return 0;
}

bool ivs_core_check(struct ivs_peer *peer)
{
	ssize_t ret;

	/* Mostly the next message confirms it. */
	if (!peer->core.unsure || peer->core.asked || peer->core.checked != peer->core.sent) {
		peer->core.checked = peer->core.sent;
		peer->core.lost_ms = 0;
		return true;
	}
	ret = ivs_wire_ask(peer);
	if (ret && ret != -FI_EAGAIN)
		peer->core.unsure = false;
	if (ret != -FI_EAGAIN) {
		peer->core.lost_ms = 0;
		return true;
	}
	/* The message had a connection, so that a question must be possible again. */
	if (!peer->core.lost_ms)
		peer->core.lost_ms = ivs_now_ms();
	return ivs_now_ms() - peer->core.lost_ms < ivs_param.timeout;
}

/*
 * Lets the core provider gather a message that it copies at once anyway, which saves 540 of 27,200 instructions at 16
 * KiB. Its completion is still to come.
 */
static __attribute__((noinline)) ssize_t send_gathered(struct core_ep *ce, struct buffer *b, size_t head, void *payload,
						       size_t len, fi_addr_t to)
{
	struct iovec iov[2] = { { b->data, head }, { payload, len } };
	struct fi_msg m = { .msg_iov = iov, .iov_count = 2, .addr = to, .context = &b->op.context };

	return fi_sendmsg(ce->ep, &m, FI_INJECT | FI_COMPLETION);
}

/*
 * Sends a message. A short one has no completion, which would cost 116 of 7,332 instructions (8 B), unless the one
 * before it had none either and may not have arrived. The peer's next message states how many it has handled. Otherwise
 * the completion of our next message confirms it, or that of a question.
 */
static int send_wire(struct ivs_peer *peer, uint8_t op, uint8_t flags, uint64_t tag, const void *fixed,
		     uint16_t fixed_len, const struct iovec *iov, size_t count, size_t offset, size_t len)
{
	struct core_ep *ce = peer->ep->core;
	struct buffer *b = ce->free;
	struct wire w = { .uid = ce->uid,
			  .tag = tag,
			  .op = op,
			  .flags = flags,
			  .fixed_len = fixed_len,
			  .len = (uint32_t) len,
			  .seq = peer->core.sent,
			  .seen = peer->core.seen };
	size_t bytes = sizeof(w) + fixed_len + len;
	ssize_t ret;

	if (!b || bytes > sizeof(b->data))
		return b ? -FI_EMSGSIZE : -FI_EAGAIN;
	memcpy(b->data, &w, sizeof(w));
	if (fixed_len)
		memcpy(b->data + sizeof(w), fixed, fixed_len);
	if (bytes <= IVS_CORE_INJECT_MAX && ce->core->injects && !peer->core.unsure && op != OP_HELLO) {
		ivs_iov_gather(b->data + sizeof(w) + fixed_len, len, iov, count, offset);
		ret = fi_inject(ce->ep, b->data, bytes, peer->core.addr);
		if (ret)
			return ret == -FI_EAGAIN ? -FI_EAGAIN : -FI_EIO;
		peer->core.unsure = true;
		peer->core.sent++;
		return 0;
	}
	b->peer = peer;
	if (len >= IVS_CORE_GATHER_MIN && bytes <= ce->gathers && count == 1) {
		ret = send_gathered(ce, b, bytes - len, (char *) iov->iov_base + offset, len, peer->core.addr);
	} else {
		ivs_iov_gather(b->data + sizeof(w) + fixed_len, len, iov, count, offset);
		ret = fi_send(ce->ep, b->data, bytes, ce->mr ? fi_mr_desc(ce->mr) : NULL, peer->core.addr,
			      &b->op.context);
	}
	if (ret)
		return ret == -FI_EAGAIN ? -FI_EAGAIN : -FI_EIO;
	ce->sending++;
	ce->free = b->next;
	if (op != OP_HELLO)
		peer->core.sent++;
	/* Its own completion also confirms the messages before it. */
	peer->core.unsure = false;
	return 0;
}

int ivs_core_send(struct ivs_peer *peer, const struct ivs_packet *pkt)
{
	return send_wire(peer, pkt->op, pkt->flags, pkt->tag, pkt->fixed, pkt->fixed_len, pkt->iov, pkt->count,
			 pkt->offset, pkt->len);
}

/*
 * Returns true if the address has the form of our own. Once libfabric 1.17's AV has seen an address of another family,
 * it accepts no more addresses.
 */
static bool alike(const struct core_ep *ce, const struct ivs_addr *addr, const struct ivs_addr *own)
{
	switch (ce->core->info->addr_format) {
	case FI_SOCKADDR:
	case FI_SOCKADDR_IN:
	case FI_SOCKADDR_IN6:
	case FI_SOCKADDR_IB:
		return addr->core_len == own->core_len && !memcmp(addr->core, own->core, sizeof(sa_family_t));
	default: return addr->core_len == own->core_len;
	}
}

bool ivs_core_address(struct ivs_peer *peer)
{
	struct core_ep *ce = peer->ep->core;

	if (peer->core.addr != FI_ADDR_NOTAVAIL)
		return true;
	if (!peer->addr.core_len || !alike(ce, &peer->addr, &peer->ep->addr) ||
	    fi_av_insert(ce->av, peer->addr.core, 1, &peer->core.addr, 0, NULL) != 1) {
		peer->core.addr = FI_ADDR_NOTAVAIL;
		return false;
	}
	ivs_passthrough_known(ce, peer);
	return true;
}

int ivs_core_connect(struct ivs_peer *peer)
{
	struct core_ep *ce = peer->ep->core;
	struct iovec iov = { &peer->ep->addr, sizeof(peer->ep->addr) };

	if (!ce || !peer->addr.core_len) {
		IVS_WARN(FI_LOG_EP_CTRL, "a rank is on another host, and there is no provider to "
					 "reach it; set FI_IVSHMEM_CORE, or give the VMs a region\n");
		return -FI_EHOSTUNREACH;
	}
	if (peer->addr.kind == IVS_ADDR_TAGGED && !ce->core->tagged) {
		IVS_WARN(FI_LOG_EP_CTRL,
			 "a rank without a region needs tagged messages, which "
			 "%s does not have here\n",
			 ce->core->info->fabric_attr->prov_name);
		return -FI_EHOSTUNREACH;
	}
	if (!ivs_core_address(peer))
		return -FI_EHOSTUNREACH;
	ce->busy = true;
	peer->piece = PIECE;
	/* Our address is sent before anything else. */
	return send_wire(peer, OP_HELLO, 0, 0, NULL, 0, &iov, 1, 0, sizeof(peer->ep->addr));
}

static struct ivs_peer *find_uid(struct core_ep *ce, uint64_t uid)
{
	struct ivs_peer *p = ce->by_uid[uid & (IVS_CORE_CHAINS - 1)];

	while (p && p->core.uid != uid)
		p = p->core.next;
	return p;
}

static void hello(struct ivs_ep *ep, uint64_t uid, const uint8_t *payload, size_t len)
{
	struct core_ep *ce = ep->core;
	struct ivs_addr addr;
	struct ivs_peer *p;

	if (len != sizeof(addr) || find_uid(ce, uid))
		return;
	memcpy(&addr, payload, sizeof(addr));
	if (addr.core_len > sizeof(addr.core))
		return;
	p = ce->ops->peer_by_addr(ep, &addr);
	if (!p || p->core.uid)
		return;
	p->core.uid = uid;
	p->core.next = ce->by_uid[uid & (IVS_CORE_CHAINS - 1)];
	ce->by_uid[uid & (IVS_CORE_CHAINS - 1)] = p;
	/*
	 * A receive of its message could not be completed: an answer could not reach it, and nothing can be read from
	 * it.
	 */
	if (!ivs_core_address(p))
		p->broken = true;
}

/* Handles a message. Returns false if it has to wait for another, or for room. */
static bool handle(struct ivs_ep *ep, struct buffer *b)
{
	struct core_ep *ce = ep->core;
	const uint8_t *fixed = b->data + sizeof(struct wire);
	struct ivs_peer *peer;
	struct wire w;
	bool rts;

	if (b->got < sizeof(w))
		return true;
	memcpy(&w, b->data, sizeof(w));
	if (w.len > b->got || sizeof(w) + w.fixed_len + w.len != b->got) {
		IVS_WARN(FI_LOG_EP_DATA, "a malformed message came over the network\n");
		return true;
	}
	if (w.op == OP_HELLO) {
		hello(ep, w.uid, fixed + w.fixed_len, w.len);
		return true;
	}
	peer = find_uid(ce, w.uid);
	if (!peer)
		return false;
	if (peer->broken || peer->channel == IVS_CHAN_DEAD)
		return true;
	if (w.seen == peer->core.sent)
		peer->core.unsure = false;
	/* Not further ahead than there are buffers, and never an old one. */
	if (w.seq != peer->core.seen)
		return w.seq - peer->core.seen > IVS_CORE_BUFFERS;
	rts = w.op == IVS_OP_TAGGED_RTS || w.op == IVS_OP_MSG_RTS;
	if (w.op >= IVS_OP_COUNT || w.flags & (IVS_F_BOUNCE | IVS_F_REGION) || rts != !!(w.flags & IVS_F_CORE) ||
	    w.fixed_len != ivs_fixed_bytes(w.op, w.flags)) {
		IVS_WARN(FI_LOG_EP_DATA, "a message of no kind came over the network\n");
		peer->core.seen++;
		return true;
	}
	if (!ce->ops->receive(ep, peer, w.op, w.flags, w.tag, fixed, fixed + w.fixed_len, w.len))
		return false;
	peer->core.seen++;
	return true;
}

/* Marks the ranks whose next message is held, or with note false clears the marks. */
static void note_turns(struct core_ep *ce, bool note)
{
	struct ivs_peer *peer;
	struct buffer *b;
	struct wire w;

	for (b = ce->held; b; b = b->next) {
		memcpy(&w, b->data, sizeof(w));
		peer = find_uid(ce, w.uid);
		if (peer && w.seq == peer->core.seen)
			peer->core.turn = note;
	}
}

/*
 * Refuses held messages when every buffer holds one, so that nothing can arrive. If the next message of a rank is held,
 * it waits for room, and the rank's others wait for it. A next message that is not held had its buffer before the
 * others: it is in flight, or was never sent. Therefore a rank that has only others here is at fault, and its buffers
 * are given to the other ranks.
 */
static void refuse_held(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	struct buffer **at = &ce->held, *b;
	struct ivs_peer *peer;
	struct wire w;

	note_turns(ce, true);
	while ((b = *at)) {
		memcpy(&w, b->data, sizeof(w));
		peer = find_uid(ce, w.uid);
		if (peer && peer->core.turn) {
			at = &b->next;
			continue;
		}
		if (peer && !peer->broken) {
			IVS_WARN(FI_LOG_EP_DATA,
				 "a rank on another host sent messages that wait for one that does not come; "
				 "its messages are ignored from now on\n");
			peer->broken = true;
			ivs_peer_condemn(peer);
		}
		*at = b->next;
		ce->held_count--;
		ivs_wire_post(ce, b);
	}
	note_turns(ce, false);
}

int ivs_wire_held(struct ivs_ep *ep)
{
	struct core_ep *ce = ep->core;
	struct buffer **at = &ce->held, *b;
	int done = 0;

	while ((b = *at) && ivs_cq_count(ep->rx_cq) < ep->rx_cq->size) {
		if (!handle(ep, b)) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		ce->held_count--;
		ivs_wire_post(ce, b);
		done++;
		/* Others may have been waiting for it. */
		at = &ce->held;
	}
	if (unlikely(ce->held_count == IVS_CORE_BUFFERS) && !b)
		refuse_held(ep);
	return done;
}

void ivs_wire_sent(struct core_ep *ce, struct buffer *b)
{
	ce->sending--;
	b->next = ce->free;
	ce->free = b;
	if (unlikely(b->op.kind == OP_ASKED)) {
		b->op.kind = OP_SENT;
		b->peer->core.asked = false;
		if (b->upto == b->peer->core.sent)
			b->peer->core.unsure = false;
	}
}

int ivs_wire_received(struct ivs_ep *ep, struct buffer *b)
{
	struct core_ep *ce = ep->core;
	struct buffer **end;
	int done = 0;

	ce->busy = true;
	ce->came = ce->ticks;
	if (ivs_cq_count(ep->rx_cq) < ep->rx_cq->size && handle(ep, b)) {
		ivs_wire_post(ce, b);
		done++;
		if (ce->held)
			done += ivs_wire_held(ep);
		return done;
	}
	b->next = NULL;
	for (end = &ce->held; *end; end = &(*end)->next)
		;
	*end = b;
	ce->held_count++;
	return done;
}
