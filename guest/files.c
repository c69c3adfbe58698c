#include "files.h"
#include "buf.h"
#include "fields.h"
#include "frame.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	RECORD_MAX = 16 * 1024,
	DEPTH_MAX = 128,
	CHUNK = 64 * 1024,
};

static uint8_t chunk[CHUNK];

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void complain(const char *format, ...)
{
	char b[2048];
	va_list a;
	int n;

	va_start(a, format);
	n = vsnprintf(b, sizeof(b) - 1, format, a);
	va_end(a);
	if (n > (int) sizeof(b) - 2)
		n = sizeof(b) - 2;
	b[n] = '\n';
	if (write(2, b, n + 1) < 0)
		return;
}

/* Reads exactly n bytes from standard input. */
static bool take(void *p, size_t n)
{
	uint8_t *to = p;

	while (n) {
		ssize_t got = read(0, to, n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			complain("the copy was cut short");
			return false;
		}
		to += got;
		n -= got;
	}
	return true;
}

static bool give(int fd, const void *p, size_t n)
{
	const uint8_t *from = p;

	while (n) {
		ssize_t did = write(fd, from, n);

		if (did < 0 && errno == EINTR)
			continue;
		if (did < 0)
			return false;
		from += did;
		n -= did;
	}
	return true;
}

/* Returns whether p is "." or a path without empty, "." and ".." components. */
static bool path_valid(const char *p)
{
	size_t depth = 0;

	if (!strcmp(p, "."))
		return true;
	for (;; p++) {
		size_t n = strcspn(p, "/");

		if (!n || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.') ||
		    ++depth > DEPTH_MAX)
			return false;
		p += n;
		if (!*p)
			return true;
	}
}

/* Opens the parent directory of a path below top without following links; *last is the final component. */
static int parent(int top, const char *path, const char **last)
{
	int fd = fcntl(top, F_DUPFD_CLOEXEC, 3);
	const char *slash;

	while (fd >= 0 && (slash = strchr(path, '/'))) {
		char name[256];
		int next;

		memcpy(name, path, slash - path);
		name[slash - path] = 0;
		next = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(fd);
		fd = next;
		path = slash + 1;
	}
	*last = path;
	return fd;
}

static bool set_times(int fd, const struct fields *f)
{
	struct timespec t[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_NOW } };
	uint64_t ns;

	if (!parse_number(fields_get(f, "mtime"), INT64_MAX, &ns))
		return true;
	t[1] = (struct timespec) { ns / 1000000000, ns % 1000000000 };
	return !futimens(fd, t);
}

static mode_t mode_of(const struct fields *f)
{
	const char *s = fields_get(f, "mode");

	return s ? strtoul(s, NULL, 8) & 01777 : 0;
}

static bool receive_file(int dir, const char *name, const struct fields *f, uint64_t size)
{
	struct stat st;
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	bool ok;

	if (fd < 0)
		return false;
	ok = !fstat(fd, &st);
	if (ok && !S_ISREG(st.st_mode)) {
		errno = EEXIST;
		ok = false;
	}
	ok = ok && !ftruncate(fd, 0);
	while (ok && size) {
		size_t n = size < CHUNK ? size : CHUNK;

		if (!take(chunk, n))
			_exit(1);
		ok = give(fd, chunk, n);
		size -= n;
	}
	ok = ok && !fchmod(fd, mode_of(f)) && set_times(fd, f);
	if (!ok) {
		int e = errno;

		close(fd);
		errno = e;
		return false;
	}
	return !close(fd);
}

struct made { /* a directory, whose mode and time are set at the end */
	char *path;
	struct buf fields;
	struct made *next;
};

static bool make_dir(int dir, const char *name)
{
	struct stat st;

	if (!mkdirat(dir, name, 0700))
		return true;
	if (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	errno = ENOTDIR;
	return S_ISDIR(st.st_mode);
}

static bool finish_dir(int top, const struct made *m)
{
	struct fields f = { (const char *) buf_head(&m->fields), m->fields.len };
	const char *name;
	int dir = parent(top, m->path, &name), fd;
	bool ok;

	if (dir < 0)
		return false;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	close(dir);
	if (fd < 0)
		return false;
	ok = !fchmod(fd, mode_of(&f)) && set_times(fd, &f);
	close(fd);
	return ok;
}

/* Receives one record; returns 0 at the last one, 1 to continue, -1 after an error message. */
static int receive_record(int top, const char *root, struct made **dirs)
{
	static char b[RECORD_MAX];
	static char path[RECORD_MAX + 256];
	struct fields f = { b, 0 };
	const char *type, *rel, *target, *name;
	uint8_t len[4];
	uint64_t size = 0;
	int dir;
	bool ok;

	if (!take(len, sizeof(len)))
		return -1;
	f.len = get32(len);
	if (f.len > RECORD_MAX) {
		complain("a record of %zu bytes", f.len);
		return -1;
	}
	if (!take(b, f.len))
		return -1;
	type = fields_valid(b, f.len) ? fields_get(&f, "type") : NULL;
	if (type && !strcmp(type, "end"))
		return 0;
	rel = type ? fields_get(&f, "path") : NULL;
	target = type ? fields_get(&f, "target") : NULL;
	if (!rel || !path_valid(rel) || (!strcmp(type, "link") && !target) ||
	    (!strcmp(type, "file") && !parse_number(fields_get(&f, "size"), INT64_MAX, &size))) {
		complain("a record that cannot be");
		return -1;
	}
	snprintf(path, sizeof(path), "%s%s%s", root, strcmp(rel, ".") ? "/" : "", strcmp(rel, ".") ? rel : "");
	dir = parent(top, path, &name);
	ok = dir >= 0;
	if (ok && !strcmp(type, "dir")) {
		struct made *m = must_alloc(sizeof(*m));

		ok = make_dir(dir, name);
		m->path = must_dup(path);
		buf_append(&m->fields, b, f.len);
		m->next = *dirs;
		*dirs = m;
	} else if (ok && !strcmp(type, "link")) {
		ok = !symlinkat(target, dir, name) ||
		     (errno == EEXIST && !unlinkat(dir, name, 0) && !symlinkat(target, dir, name));
	} else if (ok && !strcmp(type, "file")) {
		ok = receive_file(dir, name, &f, size);
	} else if (ok) {
		errno = EINVAL;
		ok = false;
	}
	if (!ok)
		complain("%s: %s", path, strerror(errno));
	if (dir >= 0)
		close(dir);
	return ok ? 1 : -1;
}

int files_receive(const char *path)
{
	char *p = must_dup(path), *slash;
	struct made *dirs = NULL;
	int top, r;

	while ((slash = strrchr(p, '/')) && !slash[1] && slash != p)
		*slash = 0;
	slash = strrchr(p, '/');
	if (!slash || !path_valid(slash + 1) || !strcmp(slash + 1, ".")) {
		complain("%s: not a name that a copy can have", path);
		return 1;
	}
	*slash = 0;
	umask(0);
	top = open(slash == p ? "/" : p, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (top < 0) {
		complain("%s: %s", slash == p ? "/" : p, strerror(errno));
		return 1;
	}
	while ((r = receive_record(top, slash + 1, &dirs)) > 0)
		;
	if (r < 0)
		return 1;
	for (; dirs; dirs = dirs->next) { /* the deepest first */
		if (!finish_dir(top, dirs)) {
			complain("%s: %s", dirs->path, strerror(errno));
			return 1;
		}
	}
	return 0;
}

static bool send_record(struct buf *b)
{
	uint8_t len[4];
	bool ok;

	if (b->len > RECORD_MAX) {
		complain("a name that is too long to copy");
		return false;
	}
	put32(len, b->len);
	ok = give(1, len, sizeof(len)) && give(1, buf_head(b), b->len);
	buf_free(b);
	return ok;
}

static bool failed(const char *path)
{
	complain("%s: %s", path, strerror(errno));
	return false;
}

static bool send_entry(int dir, const char *name, const char *shown, const char *rel, int depth);

static bool send_dir(int fd, const char *shown, const char *rel, int depth)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	bool ok = d;

	if (depth > DEPTH_MAX) {
		errno = ELOOP;
		ok = false;
	}
	if (!ok) {
		failed(shown);
		if (d)
			closedir(d);
		else
			close(fd);
		return false;
	}
	while (ok && (errno = 0, e = readdir(d))) {
		char *below, *show;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (asprintf(&below, "%s%s%s", strcmp(rel, ".") ? rel : "", strcmp(rel, ".") ? "/" : "", e->d_name) <
			    0 ||
		    asprintf(&show, "%s/%s", shown, e->d_name) < 0)
			_exit(1);
		ok = send_entry(dirfd(d), e->d_name, show, below, depth + 1);
		free(below);
		free(show);
	}
	if (ok && errno)
		ok = failed(shown);
	closedir(d);
	return ok;
}

static bool send_content(int fd, const char *shown, uint64_t size)
{
	while (size) {
		ssize_t n = read(fd, chunk, size < CHUNK ? size : CHUNK);

		if (n < 0)
			return failed(shown);
		if (n == 0) {
			complain("%s: became shorter while it was copied", shown);
			return false;
		}
		if (!give(1, chunk, n))
			return false;
		size -= n;
	}
	return true;
}

static bool send_entry(int dir, const char *name, const char *shown, const char *rel, int depth)
{
	char target[4096];
	struct buf b = { 0 };
	struct stat st;
	ssize_t n;
	int fd = -1;
	bool ok;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return failed(shown);
	if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) {
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st))
			return failed(shown);
	}
	fields_add(&b, "path", rel);
	fields_addf(&b, "mode", "%o", (unsigned) st.st_mode & 01777);
	fields_addf(&b, "mtime", "%lld", (long long) st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
	if (S_ISDIR(st.st_mode)) {
		fields_add(&b, "type", "dir");
		return send_record(&b) && send_dir(fd, shown, rel, depth);
	}
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(dir, name, target, sizeof(target) - 1);
		if (n < 0)
			return failed(shown);
		target[n] = 0;
		fields_add(&b, "type", "link");
		fields_add(&b, "target", target);
		return send_record(&b);
	}
	if (!S_ISREG(st.st_mode)) {
		complain("%s: neither a file, a directory nor a symbolic link", shown);
		return false;
	}
	fields_add(&b, "type", "file");
	fields_addf(&b, "size", "%lld", (long long) st.st_size);
	ok = send_record(&b) && send_content(fd, shown, st.st_size);
	close(fd);
	return ok;
}

int files_send(const char *path)
{
	struct buf b = { 0 };

	if (!send_entry(AT_FDCWD, path, path, ".", 0))
		return 1;
	fields_add(&b, "type", "end");
	return !send_record(&b);
}
