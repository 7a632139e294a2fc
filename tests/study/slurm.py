"""SLURM on this machine, as one node or two. Not run by pytest itself."""

import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from tests.clock import until

CONFIG = Path("/etc/slurm/slurm.conf")
"""Where SLURM's commands look, also in jobs, which do not inherit `SLURM_CONF`."""
SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=1
SlurmdTimeout=600
MinJobAge=3600
GresTypes=gpu
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = """\
NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory} \
Gres=gpu:1 State=UNKNOWN
"""
GPUS = CONFIG.with_name("gres.conf")
"""Each node passes a file off as a GPU."""


class Cluster:
    """Its daemons are processes of the test, and end with it. The first node, also by the alphabet,
    is called as this machine is, so that others find it."""

    def __init__(self, folder: Path, nodes: int = 1):
        self.folder, self.daemons = folder, {}
        self.node = socket.gethostname().split(".")[0]
        self.nodes = [self.node, *(f"{self.node}-{number}" for number in range(2, nodes + 1))]
        (folder / "state").mkdir(parents=True)
        text = SETTINGS.format(host=self.node, folder=folder, port=_port())
        for name in self.nodes:
            text += NODE.format(name=name, host=self.node, port=_port(), cpus=os.cpu_count(),
                                memory=psutil.virtual_memory().total // 2**20)
        CONFIG.write_text(text)
        GPUS.write_text("".join(f"NodeName={name} Name=gpu File=/dev/null\n"
                                for name in self.nodes))

    def start(self) -> None:
        munged = ["munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket",
                  f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                  f"--seed-file={self.folder}/munged.seed", f"--key-file={self._key()}"]
        self._start("munged", munged)
        self._start("slurmctld", ["slurmctld", "-D"])
        for name in self.nodes:
            self._start(name, ["slurmd", "-D", "-N", name])
        until(lambda: self.ask("sinfo", "--noheader", "--Node", "--format=%T").split()
              == ["idle"] * len(self.nodes))

    def ask(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True).stdout

    def jobs(self, state: str) -> dict[str, str]:
        """Number -> what Snakemake says of it."""
        lines = self.ask("squeue", "--noheader", f"--states={state}", "--format=%i|%k").splitlines()
        return dict(line.split("|", 1) for line in lines)

    def kill(self, job: str) -> None:
        """As the kernel does where memory runs out."""
        self.ask("scancel", "--signal=KILL", "--full", job)

    def restart_node(self) -> None:
        """The power of the first fails, and comes back."""
        first = [psutil.Process(self.daemons[self.node].pid), *_steps()]
        for process in [*first, *(p for each in first for p in each.children(recursive=True))]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.daemons[self.node].wait()
        node = f"nodename={self.node}"
        self.ask("scontrol", "update", node, "state=down", "reason=power")  # as a monitor would
        self._start(self.node, ["slurmd", "-D", "-N", self.node, "-b"])
        self.ask("scontrol", "update", node, "state=resume")

    def stop(self) -> None:
        self.ask("scancel", "--full", "--signal=KILL", "--user=root")
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
        CONFIG.unlink()
        GPUS.unlink()

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(command, stdout=out, stderr=out)

    def _key(self) -> Path:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        return key


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _steps() -> list[psutil.Process]:
    """What holds the jobs of this node. They are no children of its daemon."""
    return [p for p in psutil.process_iter(["name"]) if p.info["name"].startswith("slurmstepd")]
