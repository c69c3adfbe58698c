# The inside of a guest: namespaces of its own, and an ssh server. $1 is its directory, $2 its address, $3 its name.
set -e
mount --make-rprivate /
mount -t tmpfs run /run
mount -t tmpfs log /var/log
mount -t tmpfs -o mode=0700 home /root
mkdir -p /run/sshd "$1/ssh"
hostname "$3"
# What the template has of its own, if anything: host keys, and a user who may become root, with a key.
if test -d "$4/template"; then
	cp "$4/template"/ssh_host_* "$1/ssh"
	cp /etc/passwd /etc/group "$1" && echo 'mpi:x:4711:4711::/run/mpi:/bin/sh' >>"$1/passwd" && echo 'mpi:x:4711:' >>"$1/group"
	(umask 077 && cp /etc/shadow "$1" && echo 'mpi:*:19000::::::' >>"$1/shadow")
	for f in passwd group shadow; do mount --bind "$1/$f" "/etc/$f"; done
	mount -t tmpfs -o mode=0755 sudoers /etc/sudoers.d
	echo 'mpi ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/mpi
	chmod 0440 /etc/sudoers.d/mpi
	mkdir -p /run/mpi/.ssh
	cp "$4/template/authorized_keys" /run/mpi/.ssh
	chown -R 4711:4711 /run/mpi
	chmod -R go= /run/mpi
else
	ssh-keygen -q -t ed25519 -N '' -f "$1/ssh/ssh_host_ed25519_key"
fi
cat >"$1/ssh/sshd_config" <<END
Port 22
ListenAddress $2
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
END
mount --bind "$1/ssh" /etc/ssh
: >"$1/up"
exec /usr/sbin/sshd -D -e -f /etc/ssh/sshd_config
