#include "pty.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

bool pty_open(int *master, int *slave, uid_t uid)
{
	struct termios t;
	int zero = 0;

	*slave = -1;
	*master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	if (*master < 0)
		return false;
	if (!ioctl(*master, TIOCSPTLCK, &zero))
		*slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*slave < 0) {
		close(*master);
		return false;
	}
	if (fchown(*slave, uid, 5) == 0) /* group tty */
		fchmod(*slave, 0620);
	if (!tcgetattr(*slave, &t)) {
		t.c_iflag |= IUTF8;
		tcsetattr(*slave, TCSANOW, &t);
	}
	return true;
}

bool pty_resize(int master, const char *size)
{
	struct winsize w = { 0 };
	unsigned rows, cols;
	char rest;

	if (!size || sscanf(size, "%5u %5u%c", &rows, &cols, &rest) != 2 || rows > 65535 || cols > 65535)
		return false;
	w.ws_row = rows;
	w.ws_col = cols;
	return !ioctl(master, TIOCSWINSZ, &w);
}

bool pty_control(int slave)
{
	return !ioctl(slave, TIOCSCTTY, 0);
}

bool pty_signal(int master, int sig)
{
	pid_t g = tcgetpgrp(master);

	return g > 1 && !kill(-g, sig);
}
