#!/bin/sh
# Installs what make test-slurm-sacct needs beside scripts/deps-slurm.sh: slurmdbd, its MySQL plugin
# and MariaDB's server (120 MB), of whose daemons none is started. Run again it does nothing.
set -eu
PACKAGES="slurmdbd slurm-wlm-mysql-plugin mariadb-server-core" exec sh "$(dirname "$0")/deps-slurm.sh"
