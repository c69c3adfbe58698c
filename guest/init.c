#include "init.h"
#include "devices.h"
#include "exec.h"
#include "frame.h"
#include "fields.h"
#include "group.h"
#include "hypervisor.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#ifndef NM_VERSION
#define NM_VERSION "0.1"
#endif

#define PORT	"org.nearmetal.agent"
#define CONFIG	"/nearmetal/config"
#define MODULES "/nearmetal/modules"
#define CGROUPS "/run/nearmetal/cgroup"

enum { PORT_TIMEOUT = 30000, PHASES_MAX = 16 };

static struct {
	const char *name;
	uint64_t ns;
} phases[PHASES_MAX];
static size_t nphases;

static const struct config *the_config;
static int channel = -1; /* the port, until the loop owns it */

void phase(const char *name)
{
	struct timespec t;

	if (nphases == PHASES_MAX)
		return;
	clock_gettime(CLOCK_BOOTTIME, &t);
	phases[nphases].name = name;
	phases[nphases++].ns = (uint64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

void add_phases(struct buf *b)
{
	for (size_t i = 0; i < nphases; i++)
		fields_addf(b, "phase", "%s %llu", phases[i].name, (unsigned long long) phases[i].ns);
}

void power_off(bool sync_shares)
{
	kill(-1, SIGKILL);
	if (sync_shares && the_config) {
		for (size_t i = the_config->nshares; i--;)
			umount2(the_config->shares[i].target, 0);
		sync();
	}
	reboot(RB_POWER_OFF);
	reboot(RB_AUTOBOOT); /* QEMU runs with -no-reboot */
	for (;;)
		pause();
}

/* Reports to the host why this VM does not boot, then powers off. */
static void boot_failed(const char *text)
{
	uint8_t b[FRAME_HEADER + TEXT_MAX];
	struct frame f = { .type = T_RESET, .len = strlen(text) };

	on_die = NULL;
	if (f.len > TEXT_MAX)
		f.len = TEXT_MAX;
	if (channel < 0)
		channel = port_open(PORT, 500);
	if (channel >= 0) {
		frame_put(b, &f);
		memcpy(b + FRAME_HEADER, text, f.len);
		/* In blocking mode the write returns once the host has the data. */
		fcntl(channel, F_SETFL, fcntl(channel, F_GETFL) & ~O_NONBLOCK);
		if (write(channel, b, FRAME_HEADER + f.len) < 0)
			say("nor can it be reported to the host: %s", strerror(errno));
	}
	power_off(false);
}

static void mount_at(const char *what, const char *at, const char *type, unsigned long flags, const char *options)
{
	if (mount(what, at, type, flags, options))
		die("cannot mount %s at %s: %s", what, at, strerror(errno));
}

static void make_dir(const char *path, mode_t mode)
{
	if (mkdir(path, mode) && errno != EEXIST)
		die("%s: %s", path, strerror(errno));
}

/*
 * Covers a directory in which names cannot be found with an empty one. QEMU's 9p server opens a directory for reading
 * to find a name in it. If its user may search but not read the directory (mode 0711, as /home has at some sites) it
 * finds nothing, so that the cover hides nothing.
 */
static void cover(const char *path)
{
	char options[64];
	struct stat st;

	if (stat(path, &st))
		die("%s: %s", path, strerror(errno));
	snprintf(options, sizeof(options), "mode=%04o,uid=%u,gid=%u", st.st_mode & 07777, st.st_uid, st.st_gid);
	mount_at("covered", path, "tmpfs", MS_NOSUID | MS_NODEV, options);
}

/* mkdir -p */
static void make_dirs(const char *path)
{
	char b[4096];
	size_t parent = 0; /* length of its path, 0 for / */

	snprintf(b, sizeof(b), "%s", path);
	for (char *p = b + 1;; p++) {
		char end = *p;

		if (end && end != '/')
			continue;
		*p = 0;
		if (mkdir(b, 0755) && errno == EACCES && parent) {
			b[parent] = 0;
			cover(b);
			b[parent] = '/';
			make_dir(b, 0755);
		}
		if (!end)
			break;
		*p = '/';
		parent = p - b;
	}
	make_dir(b, 0755);
}

static void early_mounts(void)
{
	int fd;

	umask(022);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	if (mount("dev", "/dev", "devtmpfs", MS_NOSUID, "mode=0755") && errno != EBUSY)
		die("cannot mount /dev: %s", strerror(errno));
	/* With an initramfs without /dev/console the process has no standard streams. */
	fd = open("/dev/console", O_RDWR | O_NOCTTY);
	for (int i = 0; fd >= 0 && i < 3; i++)
		if (fd != i)
			dup2(fd, i);
	if (fd > 2)
		close(fd);
	mount_at("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	mount_at("sys", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static struct buf config_text;

static void read_config(struct config *c)
{
	int fd = open(CONFIG, O_RDONLY | O_CLOEXEC);
	char why[256];
	char *copy;
	ssize_t n;

	if (fd < 0)
		die("%s: %s", CONFIG, strerror(errno));
	while (config_text.len <= CONFIG_MAX && (n = read(fd, buf_reserve(&config_text, 65536), 65536)) > 0)
		buf_added(&config_text, n);
	close(fd);
	copy = must_alloc(config_text.len + 1);
	memcpy(copy, buf_head(&config_text), config_text.len);
	if (!config_parse(c, copy, config_text.len, why, sizeof(why)))
		die("%s: %s", CONFIG, why);
	the_config = c;
}

static void mount_export(const struct mount_config *m, const char *at, bool is_root)
{
	const char *type = m->msize ? "9p" : "virtiofs";
	char options[256] = "";

	/*
	 * The root does not change while the VM runs; a share may, and mapped files must be written. For virtiofs the
	 * host determines the caching (virtiofsd --cache).
	 */
	if (m->msize)
		snprintf(options, sizeof(options), "trans=virtio,version=9p2000.L,msize=%u,cache=%s", m->msize,
			 is_root ? "loose" : "mmap");
	if (mount(m->tag, at, type, MS_NODEV | MS_NOATIME | (m->read_only || is_root ? MS_RDONLY : 0), options))
		die("cannot mount %s (%s tag %s): %s", is_root ? "the root" : m->target, type, m->tag,
		    errno == ENOENT || (errno == EINVAL && !m->msize) ? "the VM has no such device" : strerror(errno));
}

/* Expedites RCU: mounts and interfaces that come up wait for it, some ms less each if expedited. */
static void hurry(bool on)
{
	int fd = open("/sys/kernel/rcu_expedited", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return; /* only slower */
	if (write(fd, on ? "1" : "0", 1) < 0)
		say("rcu_expedited: %s", strerror(errno));
	close(fd);
}

/*
 * Makes directories of the new root that are mounted over opaque, so that the overlay need not query the host for
 * their hidden contents.
 */
static void make_hidden(void)
{
	static const char *const hidden[] = { "dev", "proc", "sys", "run" };

	for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden); i++) {
		char path[64];

		snprintf(path, sizeof(path), "/memory/upper/%s", hidden[i]);
		make_dir(path, 0755);
		if (setxattr(path, "trusted.overlay.opaque", "y", 1, 0))
			return; /* only slower */
	}
}

/* Mounts the root, under an overlay in memory, at /new. */
static void mount_root(const struct config *c)
{
	if (c->own_root)
		die("a VM that starts from an initramfs has no root of its own");
	make_dir("/lower", 0755);
	make_dir("/memory", 0755);
	make_dir("/new", 0755);
	mount_export(&c->root, "/lower", true);
	mount_at("root", "/memory", "tmpfs", MS_NODEV, "mode=0755");
	make_dir("/memory/upper", 0755);
	make_dir("/memory/work", 0755);
	written_upper("/memory/upper");
	make_dir("/memory/upper/etc", 0755);
	/* Written below the overlay before it is mounted, so that nothing needs to be copied up. */
	hosts_write(c, "/lower/etc/hosts", "/memory/upper/etc/hosts");
	make_hidden();
	mount_at("root", "/new", "overlay", 0, "lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work");
}

/* Mounts everything that is the VM's own in the new root, then makes that /. */
static void switch_root(void)
{
	static const char *const move[] = { "dev", "proc", "sys" };
	char to[64], from[64];
	int fd;

	for (size_t i = 0; i < sizeof(move) / sizeof(*move); i++) {
		snprintf(from, sizeof(from), "/%s", move[i]);
		snprintf(to, sizeof(to), "/new/%s", move[i]);
		mkdir(to, 0755);
		mount_at(from, to, NULL, MS_MOVE, NULL);
	}
	mkdir("/new/run", 0755);
	/* /tmp is the root's own, under the overlay, because it may contain programs and inputs. */
	if (!mkdir("/new/tmp", 01777))
		chmod("/new/tmp", 01777); /* mkdir applies the umask */
	mount_at("run", "/new/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
	make_dir("/new/run/nearmetal", 0755);
	make_dir("/new/run/nearmetal/bin", 0755);
	/* This program is also nearmetal-rsh; a bind mount needs no copy. */
	fd = open("/new/run/nearmetal/bin/nearmetal-rsh", O_CREAT | O_WRONLY | O_CLOEXEC, 0755);
	if (fd >= 0)
		close(fd);
	if (fd < 0 || mount("/init", "/new/run/nearmetal/bin/nearmetal-rsh", NULL, MS_BIND, NULL))
		say("nearmetal-rsh is missing: %s", strerror(errno));
	if (chdir("/new") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die("cannot switch to the root: %s", strerror(errno));
}

static void link_at(const char *to, const char *path)
{
	if (symlink(to, path) && errno != EEXIST)
		say("%s: %s", path, strerror(errno));
}

static void own_mounts(void)
{
	make_dir("/dev/pts", 0755);
	make_dir("/dev/shm", 01777);
	mount_at("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=0620,gid=5,ptmxmode=0666");
	mount_at("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	link_at("/proc/self/fd", "/dev/fd");
	link_at("/proc/self/fd/0", "/dev/stdin");
	link_at("/proc/self/fd/1", "/dev/stdout");
	link_at("/proc/self/fd/2", "/dev/stderr");
	make_dir("/run/lock", 01777);
	chmod("/run/lock", 01777); /* mkdir applies the umask */
	make_dir(CGROUPS, 0755);
	if (!mount("cgroup", CGROUPS, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
		group_use_cgroups(CGROUPS);
}

static void mount_shares(const struct config *c)
{
	for (size_t i = 0; i < c->nshares; i++) {
		make_dirs(c->shares[i].target);
		mount_export(&c->shares[i], c->shares[i].target, false);
	}
}

/* Sets the limits with which an agent's children start: those of a login on a host configured for MPI. */
void limits(void)
{
	static const struct {
		int what;
		rlim_t soft, hard;
	} l[] = {
		{ RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY },
		{ RLIMIT_NOFILE, 1024, 1 << 20 },
		{ RLIMIT_NPROC, RLIM_INFINITY, RLIM_INFINITY },
		{ RLIMIT_CORE, 0, RLIM_INFINITY },
	};

	for (size_t i = 0; i < sizeof(l) / sizeof(*l); i++) {
		struct rlimit r = { l[i].soft, l[i].hard };

		if (setrlimit(l[i].what, &r))
			say("resource limit %d: %s", l[i].what, strerror(errno));
	}
}

static void write_config(void)
{
	int fd = open("/run/nearmetal/config", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, buf_head(&config_text), config_text.len) != (ssize_t) config_text.len)
		say("/run/nearmetal/config: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	buf_free(&config_text);
}

void init_boot(struct config *c)
{
	on_die = boot_failed;
	phase("init");
	early_mounts();
	hurry(true);
	read_config(c);
	modules_load(MODULES);
	phase("modules");
	mount_root(c);
	switch_root();
	own_mounts();
	phase("root");
	mount_shares(c);
	phase("shares");
	if (sethostname(c->name, strlen(c->name)))
		say("host name: %s", strerror(errno));
	net_up(c);
	phase("network");
	devices_up(c);
	if (c->nrdmas || c->nfunctions)
		phase("devices");
	region_show(c);
	phase("region");
	hurry(false);
	limits();
	write_config();
}

int init_hello(void)
{
	struct frame f = { .type = T_HELLO };
	struct buf b = { 0 }, h = { 0 };
	struct utsname u;

	channel = port_open(PORT, PORT_TIMEOUT);
	if (channel < 0)
		die("there is no virtio-serial port %s", PORT);
	phase("ready");
	uname(&u);
	fields_add(&h, "protocol", "1");
	fields_add(&h, "agent", NM_VERSION);
	fields_add(&h, "kernel", u.release);
	hypervisor_add(&h);
	add_phases(&h);
	devices_add(&h);
	f.len = h.len;
	frame_put(buf_reserve(&b, FRAME_HEADER), &f);
	buf_added(&b, FRAME_HEADER);
	buf_append(&b, buf_head(&h), h.len);
	/* In blocking mode the write waits until the host has opened its end. */
	if (write(channel, buf_head(&b), b.len) != (ssize_t) b.len)
		die("the channel: %s", strerror(errno));
	buf_free(&b);
	buf_free(&h);
	on_die = boot_failed;
	return channel;
}
