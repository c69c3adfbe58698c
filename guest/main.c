/* nearmetal-agent: init of a VM, its agent, and nearmetal-rsh. */
#include "devices.h"
#include "exec.h"
#include "hypervisor.h"
#include "init.h"
#include "inodes.h"
#include "log.h"
#include "owndisk.h"
#include "relay.h"
#include "rsh.h"
#include "tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifndef NM_VERSION
#define NM_VERSION "0.1"
#endif

static struct mux host;
static struct event signals;
static bool is_init;
static bool has_devices; /* the devices belong to the VM: HELLO reports them */

static void end(bool sync_shares)
{
	exec_kill_all();
	if (is_init)
		power_off(sync_shares);
	_exit(0);
}

static void host_end(struct mux *m, const char *why)
{
	(void) m;
	if (is_init)
		say("the channel has ended: %s", why);
	end(false);
}

static void power_stream(struct mux *m, uint32_t id)
{
	/* A stream that ends at once: the message, then the end. */
	struct buf b = { 0 };

	fields_add(&b, "state", "off");
	mux_frame(m, T_DATA, LANE_MESSAGE, id, buf_head(&b), b.len);
	mux_frame(m, T_CLOSE, 0, id, NULL, 0);
	buf_free(&b);
	mux_drain(m);
	end(true);
}

static void host_open(struct mux *m, uint32_t id, const char *kind, const struct fields *h)
{
	if (!strcmp(kind, "exec"))
		exec_open(m, id, h);
	else if (!strcmp(kind, "push"))
		push_open(m, id, h);
	else if (!strcmp(kind, "pull"))
		pull_open(m, id, h);
	else if (!strcmp(kind, "written"))
		written_stream_open(m, id, h);
	else if (!strcmp(kind, "tcp"))
		tcp_open(m, id, h);
	else if (!strcmp(kind, "listen"))
		listen_open(m, id, h);
	else if (!strcmp(kind, "accept"))
		accept_open(m, id, h);
	else if (!strcmp(kind, "poweroff"))
		power_stream(m, id);
	else
		mux_refuse(m, id, "this agent knows no streams of kind %.32s", kind);
}

static void signals_ready(struct event *e, uint32_t events)
{
	struct signalfd_siginfo i;

	(void) events;
	while (read(e->fd, &i, sizeof(i)) == sizeof(i)) {
		if (i.ssi_signo == SIGCHLD)
			exec_reap();
		else
			end(true);
	}
}

static void take_signals(void)
{
	sigset_t s;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&s);
	sigaddset(&s, SIGCHLD);
	sigaddset(&s, SIGTERM);
	sigaddset(&s, SIGINT); /* sent to init by Ctrl-Alt-Del */
	sigprocmask(SIG_BLOCK, &s, NULL);
	event_init(&signals, signalfd(-1, &s, SFD_CLOEXEC | SFD_NONBLOCK), signals_ready);
	event_watch(&signals, EPOLLIN);
}

static void agent_run(int fd, bool said_hello, const char *socket_path) __attribute__((noreturn));

static void agent_run(int fd, bool said_hello, const char *socket_path)
{
	struct buf b = { 0 };
	struct utsname u;

	loop_init();
	take_signals();
	host = (struct mux) { .on_open = host_open, .on_end = host_end };
	mux_start(&host, fd);
	if (!said_hello) {
		uname(&u);
		fields_add(&b, "protocol", "1");
		fields_add(&b, "agent", NM_VERSION);
		fields_add(&b, "kernel", u.release);
		hypervisor_add(&b);
		add_phases(&b);
		if (has_devices)
			devices_add(&b);
		mux_hello(&host, &b);
		buf_free(&b);
	}
	if (socket_path)
		relay_listen(socket_path, &host);
	loop_run();
}

static void init_main(void) __attribute__((noreturn));

static void init_main(void)
{
	static struct config c;

	is_init = true;
	init_boot(&c);
	vm_name = c.name;
	inodes_bound(c.max_inodes);
	agent_run(init_hello(), true, RELAY_SOCKET);
}

static int serve_main(int argc, char **argv)
{
	const char *socket_path = NULL;
	uint64_t fd = 0;

	for (int i = 2; i < argc; i++) {
		if (i == 2 && parse_number(argv[i], 1 << 20, &fd))
			continue;
		if (!strcmp(argv[i], "--no-init"))
			continue; /* the default action, unless it is process 1 */
		if (!strcmp(argv[i], "--name") && i + 1 < argc)
			vm_name = argv[++i];
		else if (!strcmp(argv[i], "--socket") && i + 1 < argc)
			socket_path = argv[++i];
		else if (!strcmp(argv[i], "--upper") && i + 1 < argc)
			written_upper(argv[++i]);
		else
			die("%s: no such option", argv[i]);
	}
	if (fcntl(fd, F_SETFD, FD_CLOEXEC))
		die("--serve: descriptor %d: %s", (int) fd, strerror(errno));
	/* The agent reaps orphans, as init does. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	phase("ready");
	agent_run(fd, false, socket_path);
}

/* Runs the agent of a VM with a disk of its own. It exits when the channel ends, and its owner ends the VM. */
static void owndisk_main(const char *name) __attribute__((noreturn));

static void owndisk_main(const char *name)
{
	static struct config c;
	int fd;

	phase("agent");
	fd = owndisk_begin(&c, name);
	vm_name = c.name;
	has_devices = c.nfunctions || c.nrdmas;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	phase("ready");
	agent_run(fd, false, RELAY_SOCKET);
}

/* Reads a configuration from standard input and prints the parsed result. */
static int check_config(void)
{
	static char text[CONFIG_MAX];
	struct config c;
	char why[256];
	size_t n = fread(text, 1, sizeof(text), stdin);

	if (!config_parse(&c, text, n, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	config_print(&c);
	config_free(&c);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = argc && strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argc ? argv[0] : "";

	if (!strcmp(name, "nearmetal-rsh"))
		return rsh_main(argc, argv);
	if (getpid() == 1)
		init_main();
	if (argc > 1 && !strcmp(argv[1], "rsh"))
		return rsh_main(argc - 1, argv + 1);
	if (argc > 2 && !strcmp(argv[1], "--serve"))
		return serve_main(argc, argv);
	if (argc == 3 && !strcmp(argv[1], "--stdio"))
		owndisk_main(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "--check-config"))
		return check_config();
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("nearmetal-agent " NM_VERSION);
		return 0;
	}
	fputs("usage: nearmetal-agent --serve FD [--no-init] [--name VM] [--socket PATH] [--upper DIR]\n"
	      "       nearmetal-agent rsh VM COMMAND...\n"
	      "       nearmetal-agent --stdio CONFIG\n"
	      "       nearmetal-agent --check-config <FILE\n"
	      "As process 1 it is the init of a nearmetal VM.\n",
	      stderr);
	return 2;
}
