/* Claims and releases slots, sends heartbeats, and detects dead ranks. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/lib.h"
#include "base/param.h"
#include "base/times.h"
#include "region/identity.h"
#include "region/ledger.h"
#include "region/region.h"
#include "region/siphash.h"

static struct ivs_ledger *ledgers[NM_LAYOUT_MAX_SLOTS];
static bool held[NM_LAYOUT_MAX_SLOTS]; /* ledgers that the heartbeat thread holds; under beat_lock */
static int doors[NM_LAYOUT_MAX_SLOTS]; /* descriptor + 1; 0: closed */
static int files[NM_LAYOUT_MAX_SLOTS]; /* of the ledgers, to be closed in a child of fork, which has no ledgers */
static uint8_t secret[16];
static bool keyed; /* secret is random: without it no slot is claimed */
static uint64_t kernel_id;
static pid_t identified;

static void identify(void)
{
	static const uint8_t zeros[16];
	char text[128] = "";
	struct stat st;
	ssize_t n;
	int fd, i;

	/* A child of fork is a different process. */
	if (kernel_id && !ivs_forked(identified))
		return;
	/* These descriptors are the parent's, whose ledgers are not mapped here. */
	for (i = 0; identified && i < NM_LAYOUT_MAX_SLOTS; i++) {
		if (doors[i])
			close(doors[i] - 1);
		if (ledgers[i])
			close(files[i]);
		doors[i] = 0;
		ledgers[i] = NULL;
		held[i] = false;
	}
	identified = getpid();
	keyed = getrandom(secret, sizeof(secret), 0) == sizeof(secret);
	if (!keyed)
		IVS_WARN(FI_LOG_DOMAIN, "no random numbers: %s\n", ivs_lib.strerror(errno));
	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, 64);
		if (n < 0)
			n = 0;
		text[n] = 0;
		close(fd);
	}
	if (!stat("/proc/self/ns/pid", &st))
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%ju", (uintmax_t) st.st_ino);
	kernel_id = ivs_siphash(zeros, text, strlen(text)) | 1;
}

const uint8_t *ivs_slot_key(void)
{
	return secret;
}

struct ivs_ledger *ivs_slot_ledger(uint32_t slot)
{
	return ledgers[slot];
}

static uint64_t prove(const uint8_t *key, uint32_t slot, uint32_t epoch)
{
	uint32_t data[2] = { slot, epoch };

	return ivs_siphash(key, data, sizeof(data)) | 1;
}

static bool beats(const struct ivs_region *r, uint32_t slot)
{
	return r->beat_mask[slot / 64] >> (slot % 64) & 1;
}

/* Holds exactly the ledgers of the slots that beat. */
static void hold(struct ivs_region *r)
{
	uint32_t i;

	for (i = 0; i < r->geo.slots; i++) {
		if (beats(r, i) == held[i])
			continue;
		held[i] = !held[i];
		if (ledgers[i] && held[i])
			ivs_ledger_hold(ledgers[i]);
		else if (ledgers[i])
			ivs_ledger_release(ledgers[i]);
		pthread_cond_broadcast(&r->held_cond);
	}
}

/* Makes the heartbeat thread hold the ledger of a slot, or release it. Under beat_lock. */
static void change_hold(struct ivs_region *r, uint32_t slot, bool on)
{
	if (on)
		r->beat_mask[slot / 64] |= 1ULL << (slot % 64);
	else
		r->beat_mask[slot / 64] &= ~(1ULL << (slot % 64));
	pthread_cond_signal(&r->beat_cond);
	while (r->beat_on && held[slot] != on)
		pthread_cond_wait(&r->held_cond, &r->beat_lock);
}

/* The heartbeat thread: one per process keeps its slots alive while the program computes. */
static void *beat(void *arg)
{
	struct ivs_region *r = arg;
	struct timespec ts;
	uint32_t i;

	pthread_mutex_lock(&r->beat_lock);
	while (!r->beat_stop) {
		__atomic_store_n(&r->beats, r->beats + 1, __ATOMIC_RELAXED);
		for (i = 0; i < r->geo.slots; i++)
			if (beats(r, i)) {
				uint64_t *b = &r->slots[i].beat;

				__atomic_store_n(b, __atomic_load_n(b, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
				if (doors[i])
					ivs_identity_clear(doors[i] - 1);
			}
		clock_gettime(CLOCK_MONOTONIC, &ts);
		ts.tv_nsec += IVS_BEAT_MS * 1000000L;
		if (ts.tv_nsec >= 1000000000L) {
			ts.tv_nsec -= 1000000000L;
			ts.tv_sec++;
		}
		do
			hold(r);
		while (!r->beat_stop && pthread_cond_timedwait(&r->beat_cond, &r->beat_lock, &ts) != ETIMEDOUT);
	}
	pthread_mutex_unlock(&r->beat_lock);
	return NULL;
}

static int beat_start(struct ivs_region *r)
{
	sigset_t all, old;
	int ret = 0;

	/* Signals are left to the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (!r->beat_on) {
		ret = pthread_create(&r->beat_thread, NULL, beat, r);
		r->beat_on = !ret;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -ret;
}

/* Notes whether a slot's owner or its heartbeat has changed since it was last read. */
static void watch(const struct ivs_region *r, uint32_t slot, uint64_t owner, struct ivs_watched *w)
{
	uint64_t beat = __atomic_load_n(&r->slots[slot].beat, __ATOMIC_RELAXED);

	if (w->owner == owner && w->beat == beat)
		return;
	w->owner = owner;
	w->beat = beat;
	w->quiet_ms = 0;
}

/* Returns true if a slot may be claimed although its owner has not released it. */
static bool expired(struct ivs_region *r, uint32_t slot, const struct ivs_watched *w)
{
	struct nm_slot *s = &r->slots[slot];
	uint64_t pid = s->pid;

	if (w->quiet_ms >= ivs_param.timeout)
		return true;
	/* The kernel id by itself proves nothing: VMs from one template may share it. */
	return w->quiet_ms >= IVS_SAME_KERNEL_MS && (w->owner & 3) == NM_SLOT_LIVE && s->kernel == kernel_id && pid &&
	       pid <= INT32_MAX && kill((pid_t) pid, 0) && errno == ESRCH;
}

static bool try_claim(struct ivs_region *r, uint32_t slot, uint64_t owner, uint32_t *epoch)
{
	uint32_t next = (uint32_t) (owner >> 2) + 1;

	if (!next)
		next = 1;
	if (!__atomic_compare_exchange_n(&r->slots[slot].owner, &owner, NM_SLOT_OWNER(next, NM_SLOT_CLAIMED), false,
					 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return false;
	*epoch = next;
	return true;
}

/* Copies the state of watched slots. Threads that claim at the same time each count in their own copy. */
static void copy_watched(struct ivs_region *r, struct ivs_watched *to, const struct ivs_watched *from)
{
	pthread_mutex_lock(&r->beat_lock);
	memcpy(to, from, r->geo.slots * sizeof(*to));
	pthread_mutex_unlock(&r->beat_lock);
}

static int find_slot(struct ivs_region *r, uint32_t *slot, uint32_t *epoch)
{
	struct ivs_watched watched[NM_LAYOUT_MAX_SLOTS];
	uint64_t waited = 0, owner;
	uint32_t i, n, first;
	struct timespec pause = { 0, IVS_CLAIM_MS * 1000000 };

	/* An owner that an earlier claim has waited for, and that is still quiet, is not waited for again. */
	copy_watched(r, watched, r->watched);
	do {
		/*
		 * Start after the last claim: a slot just released is reused last, so that its peers can read what its
		 * owner sent before it left.
		 */
		first = __atomic_load_n(&r->head->next, __ATOMIC_RELAXED) & (r->geo.slots - 1);
		/* Two rounds: slots of dead owners are claimed only if none is free. */
		for (n = 0; n < 2 * r->geo.slots; n++) {
			i = (first + n) & (r->geo.slots - 1);
			owner = __atomic_load_n(&r->slots[i].owner, __ATOMIC_ACQUIRE);
			watch(r, i, owner, &watched[i]);
			if ((owner & 3) != NM_SLOT_FREE && (n < r->geo.slots || !expired(r, i, &watched[i])))
				continue;
			if (try_claim(r, i, owner, epoch)) {
				__atomic_store_n(&r->head->next, i + 1, __ATOMIC_RELAXED);
				*slot = i;
				copy_watched(r, r->watched, watched);
				return 0;
			}
		}
		/* Pauses are counted, not the clock: a stopped process has not waited. */
		nanosleep(&pause, NULL);
		waited += IVS_CLAIM_MS;
		for (i = 0; i < r->geo.slots; i++)
			watched[i].quiet_ms += IVS_CLAIM_MS;
	} while (waited < ivs_param.timeout + 1000);
	copy_watched(r, r->watched, watched);
	IVS_WARN(FI_LOG_DOMAIN,
		 "region %s: all %u slots are taken; make the region larger, "
		 "or set FI_IVSHMEM_RANKS before its first use\n",
		 r->path, r->geo.slots);
	return -FI_ENOSPC;
}

int ivs_slot_claim(struct ivs_region *r, uint64_t name, uint32_t *slot, uint32_t *epoch)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct ivs_ledger *ledger;
	struct nm_slot *s;
	int ret;

	/* Two threads at once would each make a secret, and the proof of one of them would be wrong. */
	pthread_mutex_lock(&lock);
	identify();
	ret = keyed ? 0 : -FI_EOTHER;
	pthread_mutex_unlock(&lock);
	if (ret)
		return ret;
	ret = find_slot(r, slot, epoch);
	if (ret)
		return ret;
	s = &r->slots[*slot];
	s->kernel = kernel_id;
	s->pid = (uint64_t) getpid();
	ledger = ivs_ledger_make();
	if (ledger) {
		ledger->proof.magic = NM_PROOF_MAGIC;
		ledger->proof.slot = *slot;
		ledger->proof.epoch = *epoch;
		memcpy(ledger->proof.key, secret, sizeof(secret));
		files[*slot] = ledger->proof.ledger;
	}
	ledgers[*slot] = ledger;
	s->secret = ledger ? (uintptr_t) &ledger->proof : 0;
	s->proof = prove(secret, *slot, *epoch);
	s->name = name;
	__atomic_store_n(&s->asleep, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&s->unwoken, 0, __ATOMIC_RELAXED);
	memset(s->activity, 0, sizeof(s->activity));
	/* Connections of earlier owners stay: their epochs show that they are old. */
	memset(ivs_mrs(r, *slot), 0, NM_LAYOUT_MR_COUNT * sizeof(struct nm_mr));
	pthread_mutex_lock(&r->beat_lock);
	ret = beat_start(r);
	if (!ret) {
		doors[*slot] = ivs_identity_open(secret, *slot, *epoch) + 1;
		change_hold(r, *slot, true);
	}
	pthread_mutex_unlock(&r->beat_lock);
	if (ret)
		ivs_slot_release(r, *slot, *epoch);
	return ret;
}

void ivs_slot_live(struct ivs_region *r, uint32_t slot, uint32_t epoch)
{
	__atomic_store_n(&r->slots[slot].owner, NM_SLOT_OWNER(epoch, NM_SLOT_LIVE), __ATOMIC_RELEASE);
}

void ivs_slot_release(struct ivs_region *r, uint32_t slot, uint32_t epoch)
{
	struct nm_slot *s = &r->slots[slot];
	uint64_t owner = __atomic_load_n(&s->owner, __ATOMIC_ACQUIRE);

	if (ivs_forked(r->pid))
		return;
	pthread_mutex_lock(&r->beat_lock);
	change_hold(r, slot, false);
	if (doors[slot])
		close(doors[slot] - 1);
	doors[slot] = 0;
	pthread_mutex_unlock(&r->beat_lock);
	ivs_ledger_free(ledgers[slot]);
	ledgers[slot] = NULL;
	s->name = 0;
	/* Another rank may have assumed this one dead, and hold the slot by now. */
	if (owner >> 2 == epoch)
		__atomic_compare_exchange_n(&s->owner, &owner, NM_SLOT_OWNER(epoch, NM_SLOT_FREE), false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

int ivs_slot_find(struct ivs_region *r, uint64_t name, uint32_t *epoch)
{
	uint64_t owner, found = 0;
	uint32_t i;
	int best = -1;

	for (i = 0; i < r->geo.slots; i++) {
		owner = __atomic_load_n(&r->slots[i].owner, __ATOMIC_ACQUIRE);
		if ((owner & 3) != NM_SLOT_LIVE || r->slots[i].name != name)
			continue;
		/* A dead rank may have had this name: skip it if the kernel reports that its process does not exist. */
		if (r->slots[i].kernel == kernel_id && r->slots[i].pid <= INT32_MAX &&
		    kill((pid_t) r->slots[i].pid, 0) && errno == ESRCH)
			continue;
		found = owner;
		best = (int) i;
	}
	*epoch = (uint32_t) (found >> 2);
	return best;
}

/* Reads the nm_proof at an address of a process. Returns false if there is none for this slot and epoch. */
static bool read_proof(pid_t pid, uint64_t at, uint32_t slot, uint32_t epoch, struct nm_proof *p)
{
	struct iovec local = { p, sizeof(*p) };
	struct iovec remote = { (void *) (uintptr_t) at, sizeof(*p) };

	return process_vm_readv(pid, &local, 1, &remote, 1, 0) == sizeof(*p) && p->magic == NM_PROOF_MAGIC &&
	       p->slot == slot && p->epoch == epoch;
}

bool ivs_slot_neighbour(struct ivs_region *r, uint32_t slot, uint32_t epoch, struct ivs_alive *alive)
{
	const volatile struct nm_slot *s = &r->slots[slot];
	uint64_t pid = s->pid, proof = s->proof, at = s->secret;
	struct nm_proof p;

	identify();
	alive->ledger = NULL;
	if (!pid || pid > INT32_MAX || !read_proof((pid_t) pid, at, slot, epoch, &p) ||
	    prove(p.key, slot, epoch) != proof)
		return false;
	/* Such bytes may have arrived there in a message. Only the process that created them listens at that name. */
	if (ivs_identity_owner(p.key, slot, epoch) != (pid_t) pid)
		return false;
	alive->ledger = ivs_ledger_map((pid_t) pid, &p);
	/* Checked last: the process is still alive, so that all of the above was about one process. */
	if (alive->ledger && !ivs_ledger_held(alive->ledger))
		ivs_slot_forget(alive);
	alive->pid = (pid_t) pid;
	memcpy(alive->key, p.key, sizeof(p.key));
	return alive->ledger;
}

void ivs_slot_forget(struct ivs_alive *alive)
{
	ivs_ledger_unmap(alive->ledger);
	alive->ledger = NULL;
}

bool ivs_slot_alive(struct ivs_region *r, uint32_t slot, uint32_t epoch, struct ivs_alive *alive)
{
	struct nm_slot *s = &r->slots[slot];
	uint64_t owner = __atomic_load_n(&s->owner, __ATOMIC_ACQUIRE);
	uint64_t now = __atomic_load_n(&r->beats, __ATOMIC_RELAXED);
	uint64_t b = __atomic_load_n(&s->beat, __ATOMIC_RELAXED);

	if (owner != NM_SLOT_OWNER(epoch, NM_SLOT_LIVE))
		return false;
	/*
	 * Counted in own heartbeats, not by the clock: after all ranks were stopped (a paused VM, a suspended job),
	 * others must not count as dead before they had a chance to beat.
	 */
	if (!alive->seen || b != alive->beat) {
		alive->beat = b;
		alive->seen = now;
	}
	/* Its memory is not read for this: a process whose memory cannot be read may still run. */
	if (alive->ledger && !ivs_ledger_held(alive->ledger))
		return false;
	return (now - alive->seen) * IVS_BEAT_MS < ivs_param.timeout;
}
