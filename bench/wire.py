"""A slow link on this machine: two network namespaces, between them a relay with a delay (relay.c; without a delay a veth
pair), a rate capped by tbf.
Needs root, iproute2, a C compiler and /dev/net/tun. Ranks of Open MPI and of gloo run one on each side, each on a core of
its own, with nothing but the link between them."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("WEFT_BUILD", os.path.join(ROOT, "build"))
ADDRESS = ("10.209.0.1", "10.209.0.2")
BURST = 256 << 10


class Wire:
    """`with Wire(400, 5) as w`: 400 Mbit/s (0: no cap) and 5 ms each way."""

    def __init__(self, mbit, delay_ms):
        self.mbit, self.delay_ms, self.relay, self.folder = mbit, delay_ms, None, None
        self.netns = [f"weft-{os.getpid()}-{side}" for side in "ab"]

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave through __exit__
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        self.folder = tempfile.mkdtemp()
        for name in self.netns:
            subprocess.run(["ip", "netns", "add", name], check=True)
        if self.delay_ms:
            self.start_relay()
        else:
            self.start_veth()
        for name in self.netns if self.mbit else []:
            subprocess.run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "wire", "root", "tbf", "rate",
                            f"{self.mbit}mbit", "burst", str(BURST), "limit", "4mb"], check=True)
        self.agent = os.path.join(self.folder, "agent")  # what mpirun takes for ssh: HOST COMMAND...
        with open(self.agent, "w") as f:
            f.write(f'#!/bin/sh\nhost=$1; shift\ncase $host in {ADDRESS[0]}) n={self.netns[0]} ;; *) n={self.netns[1]} ;; esac\n'
                    'exec ip netns exec $n /bin/sh -c "$*"\n')
        os.chmod(self.agent, 0o755)

    def start_relay(self):
        relay = os.path.join(self.folder, "relay")
        subprocess.run(["cc", "-O2", os.path.join(ROOT, "bench", "relay.c"), "-o", relay], check=True)
        ends = [x for name, address in zip(self.netns, ADDRESS) for x in (name, address + "/24")]
        self.relay = subprocess.Popen([relay, *ends, str(self.delay_ms)], stdout=subprocess.PIPE, text=True)
        if self.relay.stdout.readline().strip() != "ready":
            raise RuntimeError("the relay did not start")

    def start_veth(self):
        subprocess.run(["ip", "-n", self.netns[0], "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns",
                        self.netns[1]], check=True)
        for name, address in zip(self.netns, ADDRESS):
            for words in (["link", "set", "lo", "up"], ["address", "add", address + "/24", "dev", "wire"],
                          ["link", "set", "dev", "wire", "up"]):
                subprocess.run(["ip", "-n", name, *words], check=True)

    def __exit__(self, *_):
        if self.relay:
            self.relay.terminate()
            self.relay.wait()
        for name in self.netns:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def mpirun(self, command, timeout=150, **more):
        """stdout and stderr of two ranks of a command, one on each side; more: environment variables."""
        env = dict(os.environ, **more, WEFT_PLUGIN_DIR=BUILD, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        p = subprocess.run(["ip", "netns", "exec", self.netns[0], "mpirun.openmpi", "--mca", "plm_rsh_agent", self.agent, "--mca",
                            "btl", "self,tcp", "--mca", "btl_tcp_if_include", "wire", "--mca", "oob_tcp_if_include", "wire",
                            "--bind-to", "none", "-n", "2", "--host", ",".join(ADDRESS), "sh", "-c",
                            'exec taskset -c $OMPI_COMM_WORLD_RANK "$@"', "sh", *command],
                           capture_output=True, text=True, env=env, cwd=ROOT, timeout=timeout)
        if p.returncode:
            raise RuntimeError(f"{command[:3]}: {p.stderr.strip()[-500:]}")
        return p.stdout, p.stderr

    def ranks(self, command, port=29671, timeout=150):
        """stdout of rank 0 of a PyTorch command whose two ranks meet through the link."""
        procs = []
        for r in range(2):
            env = dict(os.environ, RANK=str(r), WORLD_SIZE="2", LOCAL_RANK=str(r), MASTER_ADDR=ADDRESS[0],
                       MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="wire", OMP_NUM_THREADS="1")
            procs.append(subprocess.Popen(["ip", "netns", "exec", self.netns[r], "taskset", "-c", str(r), *command],
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT))
        try:
            out = [p.communicate(timeout=timeout) for p in procs]
        except subprocess.TimeoutExpired:
            for p in procs:
                p.kill()
            raise
        if any(p.returncode for p in procs):
            raise RuntimeError(f"{command[:3]}: {(out[0][1] + out[1][1]).strip()[-500:]}")
        return out[0][0]


def possible():
    """Why there can be no such link here; None when there can."""
    if os.geteuid():
        return "network namespaces need root"
    for program in ("ip", "tc", "cc", "taskset"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return None if os.path.exists("/dev/net/tun") else "/dev/net/tun is not there"


if __name__ == "__main__":  # MBIT DELAY_MS COMMAND...: the command as two ranks of Open MPI
    why = possible()
    if why or len(sys.argv) < 4:
        sys.exit(why or "usage: wire.py MBIT DELAY_MS COMMAND...")
    with Wire(float(sys.argv[1]), float(sys.argv[2])) as wire:
        print(*wire.mpirun(sys.argv[3:]), sep="", end="")
