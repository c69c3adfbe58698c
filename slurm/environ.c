#include <errno.h>
#include <unistd.h>

#include "environ.h"

bool nm_environ_has(int fd, const char *variable)
{
	char buf[16384];
	size_t at = 0, total = 0; /* at: number of bytes of variable that match the current variable of fd */
	bool same = true;
	ssize_t n;

	while (total < NM_ENVIRON_MAX && ((n = read(fd, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))) {
		for (ssize_t i = 0; i < n; i++) {
			if (same && buf[i] == variable[at]) {
				if (!buf[i])
					return true;
				at++;
			} else {
				same = !buf[i];
				at = 0;
			}
		}
		total += n > 0 ? (size_t) n : 0;
	}
	return same && at && !variable[at];
}
