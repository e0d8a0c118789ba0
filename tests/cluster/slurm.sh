#!/usr/bin/env bash
# An inversion through a real Slurm on this one machine, with a job cancelled in the middle; see docs/cluster.md.
# On demand, as root, on Debian or Ubuntu:  sudo bash tests/cluster/slurm.sh
# It installs the packages munge, slurmctld, slurmd and slurm-client if they are not there, starts their daemons in a
# temporary directory on loopback, and ends them again. Nothing else on the machine is touched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ "$(id -u)" = 0 ] || { echo "slurm.sh must be run as root: slurmd starts jobs as their users" >&2; exit 2; }
if ! command -v slurmctld slurmd munged sbatch > /dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends munge slurmctld slurmd slurm-client
fi
bash .ci/venv --group test
.venv/bin/python -m pip install --quiet --disable-pip-version-check 'dask-jobqueue>=0.9'

place=$(mktemp -d /tmp/invgp-slurm-XXXXXX)
chmod 755 "$place"
daemons=()
finish() {
  for ((i = ${#daemons[@]} - 1; i >= 0; i--)); do kill "${daemons[i]}" 2> /dev/null && wait "${daemons[i]}" || true; done
  rm -rf "$place"
}
trap finish EXIT

# A key and a socket of our own, so that a munge that runs already is left alone.
mkdir -m 700 "$place/munge"
head -c 1024 /dev/urandom > "$place/munge/key"
chmod 400 "$place/munge/key"
munged --foreground --force --key-file="$place/munge/key" --socket="$place/munge.socket" \
  --pid-file="$place/munge/pid" --log-file="$place/munge/log" --seed-file="$place/munge/seed" &
daemons+=($!)

host=$(hostname -s)
cat > "$place/slurm.conf" <<CONF
ClusterName=invgp
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket=$place/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=$(($(awk '/^MemTotal/ { print $2 }' /proc/meminfo) / 1024)) State=UNKNOWN
PartitionName=debug Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
mkdir "$place/state" "$place/spool"
export SLURM_CONF=$place/slurm.conf
slurmctld -D > "$place/slurmctld.out" 2>&1 &
daemons+=($!)
slurmd -D > "$place/slurmd.out" 2>&1 &
daemons+=($!)
for _ in $(seq 60); do
  sinfo --noheader --format=%T 2> /dev/null | grep -q idle && break
  sleep 1
done
sinfo --noheader --format='%N: %T, %c CPUs' || { tail -n 20 "$place"/slurm*.log "$place"/slurm*.out >&2; exit 1; }

.venv/bin/python tests/cluster/check_slurm.py "$place/work"
