/*
 * The /init of the boot tests: it loads the modules, prints on the console what it finds, echoes bytes on the agent's
 * port, and powers off on request.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double uptime(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void load_modules(void)
{
	char path[256];
	FILE *f = fopen("/nearmetal/modules", "r");

	while (f && fgets(path, sizeof(path), f)) {
		path[strcspn(path, "\n")] = 0;
		int fd = open(path, O_RDONLY);
		if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) != 0)
			printf("TEST module %s: %m\n", path);
		close(fd);
	}
}

/* show prints a file's first line with a mark that a test looks for. */
static void show(const char *mark, const char *path)
{
	char line[512] = "";
	FILE *f = fopen(path, "r");

	if (f) {
		if (!fgets(line, sizeof(line), f))
			line[0] = 0;
		fclose(f);
	}
	line[strcspn(line, "\n")] = 0;
	printf("TEST %s %s\n", mark, f ? line : "(none)");
}

/* show_dir prints, for each entry of a directory, one file of it. */
static void show_dir(const char *mark, const char *path, const char *name)
{
	DIR *d = opendir(path);
	struct dirent *e;
	char file[600], what[600];

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			snprintf(file, sizeof(file), "%s/%s/%s", path, e->d_name, name);
			snprintf(what, sizeof(what), "%s %s", mark, e->d_name);
			show(what, file);
		}
}

/* show_cpus prints one file of each CPU, with the mark and the CPU's number. */
static void show_cpus(const char *mark, const char *name)
{
	char file[256], what[64];

	for (int i = 0; i < 64; i++) {
		snprintf(file, sizeof(file), "/sys/devices/system/cpu/cpu%d/%s", i, name);
		snprintf(what, sizeof(what), "%s cpu%d", mark, i);
		if (access(file, F_OK) == 0)
			show(what, file);
	}
}

int main(void)
{
	char c;

	klogctl(6, NULL,
		0); /* keeps the kernel's lines, except a panic's, from mixing with a tty's (syslog(2), CONSOLE_OFF) */
	mount("proc", "/proc", "proc", 0, "");
	mount("sysfs", "/sys", "sysfs", 0, "");
	mount("devtmpfs", "/dev", "devtmpfs", 0, "");
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("TEST init %.2f\n", uptime());
	load_modules();
	show("config", "/nearmetal/config");
	show("online", "/sys/devices/system/node/online");
	show("distance", "/sys/devices/system/node/node0/distance");
	show_cpus("package", "topology/physical_package_id");
	show_cpus("die", "topology/die_id");
	show_cpus("threads", "topology/thread_siblings_list");
	show_cpus("l3", "cache/index3/shared_cpu_list");
	show("cmdline", "/proc/cmdline");
	show_dir("mac", "/sys/class/net", "address");
	show_dir("mtu", "/sys/class/net", "mtu");
	show_dir("nd", "/sys/bus/nd/devices", "size");
	show_dir("pci", "/sys/bus/pci/devices", "modalias");
	show_dir("pcinode", "/sys/bus/pci/devices", "numa_node");
	mkdir("/mnt", 0755);
	if (mount("root", "/mnt", "9p", MS_RDONLY, "trans=virtio,version=9p2000.L") == 0)
		show("shared", "/mnt/hello");
	mkdir("/rw", 0755);
	if (mount("share0", "/rw", "9p", 0, "trans=virtio,version=9p2000.L") == 0) {
		int fd = open("/rw/written", O_CREAT | O_WRONLY, 0640);
		if (fd < 0 || write(fd, "by the VM\n", 10) != 10)
			printf("TEST written: %m\n");
		close(fd);
		if (chown("/rw/written", 1234, 1234) != 0)
			printf("TEST chown: %m\n");
	}
	printf("TEST ready %.2f\n", uptime());
	printf("TEST up\n");
	int fd = open("/dev/vport0p1", O_RDWR);
	if (fd >= 0)
		while (read(fd, &c, 1) == 1) {
			if (c == 'q')
				reboot(RB_POWER_OFF);
			if (c == 'p') {
				int s = open("/proc/sysrq-trigger", O_WRONLY);
				if (write(s, "c", 1) != 1)
					printf("TEST no sysrq\n");
			}
			if (write(fd, &c, 1) != 1)
				break;
		}
	printf("TEST port: %m\n");
	reboot(RB_POWER_OFF);
	return 0;
}
