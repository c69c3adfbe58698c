# The inside of a guest: namespaces of its own, and an ssh server. $1 is its directory, $2 its address, $3 its name.
set -e
mount --make-rprivate /
mount -t tmpfs run /run
mount -t tmpfs -o mode=0700 home /root
mkdir -p /run/sshd "$1/ssh"
hostname "$3"
ssh-keygen -q -t ed25519 -N '' -f "$1/ssh/ssh_host_ed25519_key"
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
