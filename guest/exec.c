#include "exec.h"
#include "files.h"
#include "group.h"
#include "identity.h"
#include "log.h"
#include "pty.h"
#include "pump.h"
#include "tcp.h"
#include "written.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	PIPE_SIZE = 256 * 1024,
	GRACE_MS = 2000, /* from SIGTERM to SIGKILL, after the client has gone */
};

const char *vm_name = "";

struct proc {
	struct stream *s; /* NULL after the client has gone */
	struct group group;
	struct source out, err;
	struct sink in;
	struct timer kill;
	int master; /* master side of a terminal, -1: none */
	int failed; /* pipe on which the child reports why it could not exec */
	bool exited, told, out_done, err_done;
	bool glance;	       /* the client asks whether files were written outside shares */
	struct timespec began; /* on the clock of files' times */
	uint64_t oom_before;   /* oom_kills() at its start */
	int status;
	char *what; /* the program's name */
	struct proc *next;
};

static struct proc *procs;

enum stage { AT_EXEC, AT_DIR, AT_IDENTITY, AT_TERMINAL, AT_CONNECT };

struct failure {
	int stage, err;
};

struct job { /* the task of a child */
	struct identity id;
	char **argv, **envp; /* the last but one element of envp is free */
	const char *connect; /* "NAME ADDR": a connection whose descriptor is the value of variable NAME */
	const char *dir;
	bool dir_optional;
	int (*builtin)(const char *path); /* called instead of executing argv */
	const char *path;
	int top; /* a directory as the builtin's standard input; 0: none */
};

static void fail(int fd, int stage)
{
	struct failure f = { stage, errno };

	if (write(fd, &f, sizeof(f)) != sizeof(f))
		_exit(125);
	_exit(127);
}

/* Executes argv[0] as a shell would: searched in PATH if it has no slash, by sh if it is not a binary. */
static void exec_program(char **argv, char **envp)
{
	const char *path = "/usr/local/bin:/usr/bin:/bin", *p;
	bool denied = false;
	char file[4200];

	if (strchr(argv[0], '/')) {
		execve(argv[0], argv, envp);
		return;
	}
	for (char **e = envp; *e; e++)
		if (!strncmp(*e, "PATH=", 5))
			path = *e + 5;
	for (p = path;; p++) {
		size_t n = strcspn(p, ":");

		if (snprintf(file, sizeof(file), "%.*s%s%s", (int) n, p, n ? "/" : "./", argv[0]) <
		    (int) sizeof(file)) {
			/*
			 * The check is cheaper: an execve that finds no file first copies all arguments and
			 * variables.
			 */
			if (!access(file, F_OK))
				execve(file, argv, envp);
			if (errno == ENOEXEC) {
				size_t argc = 0;
				char **sh;

				while (argv[argc])
					argc++;
				sh = must_alloc((argc + 2) * sizeof(*sh));
				memcpy(sh + 1, argv, (argc + 1) * sizeof(*sh));
				sh[0] = "/bin/sh";
				sh[1] = file;
				execve(sh[0], sh, envp);
				return;
			}
			if (errno == EACCES)
				denied = true;
			else if (errno != ENOENT && errno != ENOTDIR)
				return;
		}
		p += n;
		if (!*p)
			break;
	}
	errno = denied ? EACCES : ENOENT;
}

/*
 * Uses the system call, because the library's sigaction rejects the signals that it reserves for itself, and one of
 * them (32) is ignored in processes started by glibc's posix_spawn.
 */
static void default_signals(void)
{
	/* struct sigaction in the kernel's form: handler, flags, restorer, mask; all 0. */
	static const unsigned long dfl[4];

	for (int i = 1; i < 65; i++)
		syscall(SYS_rt_sigaction, i, dfl, NULL, 8);
}

/* Makes the program's connection, see struct job. */
static bool connect_for(const struct job *j)
{
	static char var[64];
	const char *blank = strchr(j->connect, ' ');
	size_t n = 0;
	int fd;

	if (!blank || blank - j->connect > 32) {
		errno = EINVAL;
		return false;
	}
	fd = tcp_dial(blank + 1);
	if (fd < 0)
		return false;
	snprintf(var, sizeof(var), "%.*s=%d", (int) (blank - j->connect), j->connect, fd);
	while (j->envp[n])
		n++;
	j->envp[n] = var;
	return true;
}

static void child(const struct job *j, int in, int out, int err, int failed, bool tty)
{
	sigset_t none;

	setsid();
	if (tty && !pty_control(in))
		fail(failed, AT_TERMINAL);
	if (dup2(j->top ? j->top : in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		fail(failed, AT_EXEC);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	default_signals();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (j->connect && !connect_for(j))
		fail(failed, AT_CONNECT);
	if (!identity_take(&j->id))
		fail(failed, AT_IDENTITY);
	if (j->dir && chdir(j->dir) && !(j->dir_optional && !chdir("/")))
		fail(failed, AT_DIR);
	if (j->builtin) {
		/* No exec closes these, and this process's copy of the pipe's end would hide its EOF. */
		close_range(3, ~0U, 0);
		_exit(j->builtin(j->path));
	}
	exec_program(j->argv, j->envp);
	fail(failed, AT_EXEC);
}

static void finish(struct proc *p)
{
	struct proc **q = &procs;

	while (*q != p)
		q = &(*q)->next;
	*q = p->next;
	timer_clear(&p->kill);
	source_stop(&p->out);
	source_stop(&p->err);
	sink_stop(&p->in);
	if (p->failed >= 0)
		close(p->failed);
	group_drop(&p->group);
	free(p->what);
	free_later(p);
}

/* Formats the message for the client about a child that could not exec. */
static int explain(const struct proc *p, const struct failure *f, char *b, size_t n)
{
	const char *colon = *vm_name ? ": " : "";
	const char *why = strerror(f->err);

	switch (f->stage) {
	case AT_DIR: snprintf(b, n, "%s%scannot enter the working directory: %s", vm_name, colon, why); return 126;
	case AT_IDENTITY:
		snprintf(b, n, "%s%scannot take on the user's identity and limits: %s", vm_name, colon, why);
		return 126;
	case AT_CONNECT:
		snprintf(b, n, "%s%scannot connect the program to the host: %s", vm_name, colon, why);
		return 126;
	case AT_TERMINAL: snprintf(b, n, "%s%scannot control the terminal: %s", vm_name, colon, why); return 126;
	}
	if (f->err == ENOENT) {
		bool path = strchr(p->what, '/');

		snprintf(b, n, "%s%s%.512s: %s", vm_name, colon, p->what,
			 path ? "no such program, or its interpreter is missing" : "no such program in PATH");
		return 127;
	}
	if (f->err == EACCES)
		why = "may not be executed";
	snprintf(b, n, "%s%s%.512s: %s", vm_name, colon, p->what, why);
	return 126;
}

/* Returns how many processes this VM's kernel has killed since its boot because memory ran out. */
static uint64_t oom_kills(void)
{
	static char text[32768];
	size_t used = 0;
	ssize_t n;
	uint64_t count = 0;
	const char *at;
	int fd = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	while (used < sizeof(text) - 1 && (n = read(fd, text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t) n;
	close(fd);
	text[used] = 0;
	at = strstr(text, "\noom_kill ");
	if (at)
		count = strtoull(at + strlen("\noom_kill "), NULL, 10);
	return count;
}

static int upper; /* directory of the root's overlay; 0: none */

static void tell(struct proc *p)
{
	struct buf b = { 0 };
	struct failure f;
	char text[800];

	p->told = true;
	if (p->failed >= 0 && read(p->failed, &f, sizeof(f)) == sizeof(f)) {
		fields_addf(&b, "exit", "%d", explain(p, &f, text, sizeof(text)));
		fields_add(&b, "error", text);
	} else if (WIFSIGNALED(p->status)) {
		fields_addf(&b, "signal", "%d", WTERMSIG(p->status));
	} else {
		fields_addf(&b, "exit", "%d", WEXITSTATUS(p->status));
	}
	if (oom_kills() != p->oom_before)
		fields_add(&b, "oom", "1");
	if (p->glance)
		fields_addf(&b, "written", "%d", upper && written_since(upper, &p->began));
	stream_message(p->s, &b);
	buf_free(&b);
}

static void check(struct proc *p)
{
	if (!p->s)
		return;
	bool over = p->exited && p->out_done && p->err_done;

	/* Processes it leaves behind may write until the output has ended. */
	if (p->exited && !p->told && (over || !p->glance))
		tell(p);
	if (over) {
		stream_close(p->s);
		p->s = NULL;
		finish(p);
	}
}

static void out_ended(struct source *s)
{
	struct proc *p = s->owner;

	p->out_done = true;
	p->master = -1; /* closed with it */
	check(p);
}

static void err_ended(struct source *s)
{
	struct proc *p = s->owner;

	p->err_done = true;
	check(p);
}

static void kill_now(struct timer *t)
{
	struct proc *p = (struct proc *) ((char *) t - offsetof(struct proc, kill));

	group_kill(&p->group);
	if (p->exited)
		finish(p);
	else
		timer_set(t, 1000000000); /* until the kernel has released it */
}

/* The client has gone, so everything that it has started is ended. */
static void abandon(struct proc *p)
{
	p->s = NULL;
	source_stop(&p->out);
	source_stop(&p->err);
	sink_stop(&p->in);
	group_signal(&p->group, SIGHUP);
	group_signal(&p->group, SIGTERM);
	group_signal(&p->group, SIGCONT);
	p->kill.fire = kill_now;
	timer_set(&p->kill, GRACE_MS * 1000000ull);
}

static void on_data(struct stream *s, int lane, const uint8_t *b, size_t n)
{
	struct proc *p = s->owner;
	struct fields f = { (const char *) b, n };
	const char *v;
	uint64_t sig;

	if (lane == LANE_DATA) {
		sink_data(&p->in, b, n);
		return;
	}
	stream_refill(s, lane, 0);
	if (lane != LANE_MESSAGE || !fields_valid(f.p, n))
		return;
	v = fields_get(&f, "signal");
	if (v && parse_number(v, 64, &sig) && sig && !p->exited) {
		if (p->master < 0 || !pty_signal(p->master, sig)) {
			/* A newly created child has no group of its own yet. */
			if (kill(-p->group.pid, sig) && errno == ESRCH)
				kill(p->group.pid, sig);
		}
	}
	v = fields_get(&f, "size");
	if (v && p->master >= 0)
		pty_resize(p->master, v);
}

static void on_credit(struct stream *s, int lane, uint32_t n)
{
	struct proc *p = s->owner;

	(void) n;
	if (lane == LANE_DATA)
		source_go(&p->out);
	else if (lane == LANE_ERROR)
		source_go(&p->err);
}

static void on_eof(struct stream *s, int lane)
{
	struct proc *p = s->owner;

	if (lane != LANE_DATA)
		return;
	if (p->master >= 0)
		sink_data(&p->in, "\004", 1); /* the character that the line discipline treats as the end */
	else
		sink_eof(&p->in);
}

static void on_end(struct stream *s, bool reset, const char *text)
{
	(void) reset;
	(void) text;
	abandon(s->owner);
}

static const struct stream_ops ops = { on_data, on_credit, on_eof, on_end };

static void close_all(const int *fd, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

static void wide_pipe(int fd)
{
	fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE);
}

static void start(struct mux *m, uint32_t id, const struct fields *h, struct job *j, const char *what)
{
	int fd[10] = { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 };
	int *in = fd, *out = fd + 2, *err = fd + 4, *failed = fd + 6, *tty = fd + 8;
	bool is_tty = fields_get(h, "tty"), no_stdin = fields_get(h, "no-stdin");
	struct proc *p;
	struct buf b = { 0 };
	pid_t pid;

	bool ok = !pipe2(failed, O_CLOEXEC);
	if (is_tty) {
		ok = ok && pty_open(&tty[0], &tty[1], j->id.uid);
	} else {
		if (no_stdin)
			ok = ok && (in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
		else
			ok = ok && !pipe2(in, O_CLOEXEC);
		ok = ok && !pipe2(out, O_CLOEXEC) && !pipe2(err, O_CLOEXEC);
	}
	if (!ok) {
		mux_refuse(m, id, "%s: %s", what, strerror(errno));
		close_all(fd, 10);
		return;
	}
	if (is_tty)
		pty_resize(tty[0], fields_get(h, "size"));
	p = must_alloc(sizeof(*p));
	p->glance = fields_get(h, "written");
	clock_gettime(CLOCK_REALTIME_COARSE, &p->began);
	p->oom_before = oom_kills();
	pid = group_fork(&p->group);
	if (pid == 0) {
		if (is_tty)
			child(j, tty[1], tty[1], tty[1], failed[1], true);
		else
			child(j, in[0], out[1], err[1], failed[1], false);
	}
	if (pid < 0) {
		mux_refuse(m, id, "%s: cannot fork: %s", what, strerror(errno));
		close_all(fd, 10);
		free(p);
		return;
	}
	p->what = must_dup(what);
	p->next = procs;
	procs = p;
	p->master = tty[0];
	p->failed = failed[0];
	close(failed[1]);
	fcntl(p->failed, F_SETFL, O_NONBLOCK);
	p->s = mux_take(m, id, &ops, p);
	fields_addf(&b, "pid", "%d", (int) pid);
	stream_message(p->s, &b);
	buf_free(&b);
	if (is_tty) {
		close(tty[1]);
		stream_eof(p->s, LANE_ERROR);
		p->err_done = true;
		p->err.ev.fd = -1;
		sink_start(&p->in, fcntl(tty[0], F_DUPFD_CLOEXEC, 3), p->s, LANE_DATA, NULL, p);
		source_start(&p->out, tty[0], p->s, LANE_DATA, out_ended, p);
		return;
	}
	close(in[0]);
	close(out[1]);
	close(err[1]);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	wide_pipe(out[0]);
	if (in[1] >= 0) {
		fcntl(in[1], F_SETFL, O_NONBLOCK);
		wide_pipe(in[1]);
	}
	sink_start(&p->in, in[1], p->s, LANE_DATA, NULL, p);
	source_start(&p->out, out[0], p->s, LANE_DATA, out_ended, p);
	source_start(&p->err, err[0], p->s, LANE_ERROR, err_ended, p);
}

/* Returns the values of key as a list that ends with two NULLs; the caller frees the list. */
static char **list(const struct fields *h, const char *key)
{
	size_t n = 0, at = 0;
	char **v = must_alloc((fields_count(h, key) + 2) * sizeof(*v));
	const char *s;

	while ((s = fields_next(h, key, &at)))
		v[n++] = (char *) s;
	return v;
}

void exec_open(struct mux *m, uint32_t id, const struct fields *h)
{
	static struct job j;
	const char *wrong;

	j = (struct job) { .dir = fields_get(h, "dir"),
			   .dir_optional = fields_get(h, "dir-optional"),
			   .connect = fields_get(h, "connect") };
	wrong = identity_read(&j.id, h);
	if (!wrong && !fields_get(h, "arg"))
		wrong = "no program is named";
	if (wrong) {
		mux_refuse(m, id, "exec: %s", wrong);
		return;
	}
	j.argv = list(h, "arg");
	j.envp = list(h, "env");
	start(m, id, h, &j, j.argv[0]);
	free(j.argv);
	free(j.envp);
}

static void copy_open(struct mux *m, uint32_t id, const struct fields *h, int (*f)(const char *))
{
	static struct job j;
	const char *wrong;

	j = (struct job) { .builtin = f, .path = fields_get(h, "path") };
	wrong = identity_read(&j.id, h);
	if (!wrong && (!j.path || j.path[0] != '/'))
		wrong = "the path is not absolute";
	if (wrong)
		mux_refuse(m, id, "copy: %s", wrong);
	else
		start(m, id, h, &j, j.path);
}

void push_open(struct mux *m, uint32_t id, const struct fields *h)
{
	copy_open(m, id, h, files_receive);
}

void pull_open(struct mux *m, uint32_t id, const struct fields *h)
{
	copy_open(m, id, h, files_send);
}

void written_upper(const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd > 0)
		upper = fd;
}

void written_stream_open(struct mux *m, uint32_t id, const struct fields *h)
{
	static struct job j;
	const char *wrong, *age = fields_get(h, "age");

	j = (struct job) { .builtin = written_list, .path = age ? age : "", .top = upper };
	wrong = identity_read(&j.id, h);
	if (!wrong && !upper)
		wrong = "this VM has no overlay";
	if (wrong)
		mux_refuse(m, id, "written: %s", wrong);
	else
		start(m, id, h, &j, "written");
}

void exec_reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct proc *p = procs;

		while (p && (p->group.pid != pid || p->exited))
			p = p->next;
		if (!p)
			continue; /* an orphan */
		p->exited = true;
		p->status = status;
		check(p);
	}
}

void exec_kill_all(void)
{
	for (struct proc *p = procs; p; p = p->next)
		group_kill(&p->group);
}
