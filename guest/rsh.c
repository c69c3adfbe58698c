#include "rsh.h"
#include "log.h"
#include "pump.h"
#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

enum { FAILED = 255 }; /* exit code of ssh's own errors */

static struct mux mux;
static struct stream *stream;
static struct source in;
static struct sink out, err;
static struct event signals;
static bool over; /* the stream has ended */
static int code = FAILED, killed_by;

static void leave(int status)
{
	_exit(status);
}

static void complain(const char *text)
{
	char b[1200];
	int n = snprintf(b, sizeof(b), "nearmetal-rsh: %s\n", text);

	if (write(2, b, n < (int) sizeof(b) ? n : (int) sizeof(b) - 1) < 0)
		leave(FAILED);
}

/* Exits once all output is written. */
static void check(void)
{
	struct rlimit none = { 0, 0 };

	if (!over || out.ev.fd >= 0 || err.ev.fd >= 0)
		return;
	if (killed_by) {
		sigset_t s;

		/* Dies as the program did, without a core file of its own. */
		setrlimit(RLIMIT_CORE, &none);
		signal(killed_by, SIG_DFL);
		sigemptyset(&s);
		sigprocmask(SIG_SETMASK, &s, NULL);
		kill(getpid(), killed_by);
		leave(128 + killed_by);
	}
	leave(code);
}

static void sink_ended(struct sink *p)
{
	(void) p;
	check();
}

static void in_ended(struct source *p)
{
	(void) p;
}

static void on_data(struct stream *s, int lane, const uint8_t *b, size_t n)
{
	struct fields f = { (const char *) b, n };
	const char *text;
	uint64_t v;

	if (lane == LANE_DATA) {
		sink_data(&out, b, n);
		return;
	}
	if (lane == LANE_ERROR) {
		sink_data(&err, b, n);
		return;
	}
	stream_refill(s, lane, 0);
	if (!fields_valid(f.p, n))
		return;
	if (parse_number(fields_get(&f, "signal"), 64, &v))
		killed_by = v;
	if (parse_number(fields_get(&f, "exit"), 255, &v))
		code = v;
	text = fields_get(&f, "error");
	if (text)
		complain(text);
}

static void on_credit(struct stream *s, int lane, uint32_t n)
{
	(void) s;
	(void) n;
	if (lane == LANE_DATA)
		source_go(&in);
}

static void on_eof(struct stream *s, int lane)
{
	(void) s;
	if (lane == LANE_DATA)
		sink_eof(&out);
	else if (lane == LANE_ERROR)
		sink_eof(&err);
}

static void on_end(struct stream *s, bool reset, const char *text)
{
	(void) s;
	if (reset) {
		complain(text);
		code = FAILED;
	}
	over = true;
	stream = NULL;
	in.s = NULL;
	event_close(&in.ev);
	out.s = err.s = NULL;
	sink_eof(&out);
	sink_eof(&err);
	check();
}

static const struct stream_ops ops = { on_data, on_credit, on_eof, on_end };

static void mux_end(struct mux *m, const char *why)
{
	(void) m;
	if (!over) {
		complain(why);
		leave(FAILED);
	}
}

static void no_open(struct mux *m, uint32_t id, const char *kind, const struct fields *h)
{
	(void) kind;
	(void) h;
	mux_refuse(m, id, "nothing is offered here");
}

static void signals_ready(struct event *e, uint32_t events)
{
	struct signalfd_siginfo i;
	struct buf b = { 0 };

	(void) events;
	if (read(e->fd, &i, sizeof(i)) != sizeof(i) || !stream)
		return;
	fields_addf(&b, "signal", "%u", i.ssi_signo);
	stream_message(stream, &b);
	buf_free(&b);
}

static void forward_signals(void)
{
	static const int sigs[] = { SIGTERM, SIGINT,  SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2,
				    SIGCONT, SIGTSTP, SIGURG, SIGALRM, SIGXCPU };
	sigset_t s;

	sigemptyset(&s);
	for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
		sigaddset(&s, sigs[i]);
	sigprocmask(SIG_BLOCK, &s, NULL);
	signal(SIGPIPE, SIG_IGN);
	event_init(&signals, signalfd(-1, &s, SFD_CLOEXEC | SFD_NONBLOCK), signals_ready);
	event_watch(&signals, EPOLLIN);
}

static int connect_agent(void)
{
	const char *path = getenv("NEARMETAL_AGENT_SOCKET");
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!path || !*path)
		path = RELAY_SOCKET;
	if (strlen(path) >= sizeof(a.sun_path) || fd < 0)
		return -1;
	strcpy(a.sun_path, path);
	return connect(fd, (struct sockaddr *) &a, sizeof(a)) ? -1 : fd;
}

/* Skips ssh's options; returns the index of the VM's name. */
static int skip_options(int argc, char **argv, bool *no_stdin)
{
	int i = 1;

	for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
		if (!strcmp(argv[i], "--"))
			return i + 1;
		for (const char *p = argv[i] + 1; *p; p++) {
			if (*p == 'n')
				*no_stdin = true;
			if (strchr("BbcDEeFIiJLlmOopQRSWw", *p)) {
				if (!p[1])
					i++; /* the value is the next argument */
				break;
			}
		}
	}
	return i;
}

int rsh_main(int argc, char **argv)
{
	struct buf open = { 0 }, command = { 0 }, hello = { 0 };
	char cwd[4096], text[512];
	bool no_stdin = false;
	const char *vm;
	int at = skip_options(argc, argv, &no_stdin), fd;

	if (argc - at < 2) {
		complain("usage: nearmetal-rsh [options of ssh, ignored] VM COMMAND...");
		return FAILED;
	}
	vm = strrchr(argv[at], '@') ? strrchr(argv[at], '@') + 1 : argv[at];
	for (int i = at + 1; i < argc; i++) {
		if (command.len)
			buf_append(&command, " ", 1);
		buf_append(&command, argv[i], strlen(argv[i]));
	}
	buf_append(&command, "", 1);
	fd = connect_agent();
	if (fd < 0) {
		snprintf(text, sizeof(text), "no agent of a VM is reached: %s", strerror(errno));
		complain(text);
		return FAILED;
	}
	buf_append(&open, "exec", 5);
	fields_add(&open, "vm", vm);
	fields_add(&open, "arg", "/bin/sh");
	fields_add(&open, "arg", "-c");
	fields_add(&open, "arg", (char *) buf_head(&command));
	for (char **e = environ; *e; e++)
		if (strchr(*e, '='))
			fields_add(&open, "env", *e);
	if (getcwd(cwd, sizeof(cwd))) {
		fields_add(&open, "dir", cwd);
		fields_add(&open, "dir-optional", "1");
	}
	if (no_stdin)
		fields_add(&open, "no-stdin", "1");
	mode_t mask = umask(022);
	umask(mask);
	fields_addf(&open, "umask", "%o", mask);
	if (open.len > HEADER_MAX) {
		complain("the command and its environment are too long");
		return FAILED;
	}
	loop_init();
	forward_signals();
	mux = (struct mux) { .initiator = true, .on_open = no_open, .on_end = mux_end };
	mux_start(&mux, fd);
	fields_add(&hello, "protocol", "1");
	mux_hello(&mux, &hello);
	stream = mux_open(&mux, &open, &ops, NULL);
	/* Standard streams may be shared with other processes, so they stay in blocking mode. */
	sink_start(&out, 1, stream, LANE_DATA, sink_ended, NULL);
	/* A duplicate, so that descriptor 2 stays open for this program's own messages. */
	sink_start(&err, fcntl(2, F_DUPFD_CLOEXEC, 3), stream, LANE_ERROR, sink_ended, NULL);
	out.gentle = err.gentle = true;
	if (no_stdin) {
		in.ev.fd = -1;
		stream_eof(stream, LANE_DATA);
	} else {
		source_start(&in, 0, stream, LANE_DATA, in_ended, NULL);
	}
	loop_run();
}
