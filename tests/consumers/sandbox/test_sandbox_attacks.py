"""Code of a model in the sandbox: what it tries is contained, named, and gone a second later."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxLimits, SandboxOutcome, SandboxProgram, SandboxRefused
from tests.patience import until

pytestmark = pytest.mark.process
LIMITS = SandboxLimits(
    cpu_s=2, wall_s=6, memory_bytes=128 << 20, processes=12, files_bytes=8 << 20, output_bytes=64 << 10
)
MARK = f"claw-sandbox-attack-{os.getpid()}-"  # of this process of tests: others attack at the same time


def attack(sandbox: Sandbox, code: str, **limits: float) -> SandboxOutcome:
    """Runs code with a mark in its command line; afterwards nobody has the mark within a second."""
    merged = {name: getattr(LIMITS, name) for name in LIMITS.__dataclass_fields__} | limits
    outcome = sandbox.run(
        SandboxProgram(
            argv=[sys.executable, "-I", "-S", "main.py", MARK],
            files={"main.py": code.encode()},
            limits=SandboxLimits(**merged),
        )
    )
    deadline_s = time.monotonic() + 1.0
    while marked() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert marked() == []
    return outcome


def marked() -> list[str]:
    """Processes of this machine with the mark."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if MARK.encode() in line and b"pytest" not in line:
                lines.append(line.decode())
    return lines


def once_it_runs(act: Callable[[], None]) -> None:
    """Does something in a thread as soon as an attack is under way."""

    def wait_and_act() -> None:
        until(marked, "it runs")
        act()

    threading.Thread(target=wait_and_act, daemon=True).start()


def said(outcome: SandboxOutcome) -> str:
    """What it printed; it ended by itself."""
    assert (outcome.reason, outcome.exit_code) == ("ended", 0), outcome
    return outcome.stdout.decode().strip()


def test_what_is_allowed_works(sandbox) -> None:
    """Files, threads, children, locks, a pair of sockets, memory and arithmetic, as one is used to."""
    code = """
import os, subprocess, sys, threading, socket, tempfile, asyncio, multiprocessing
open('a/b.txt', 'a').close() if os.path.isdir('a') else os.mkdir('a')
with tempfile.NamedTemporaryFile() as f: f.write(b'x' * 1000)
t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()
print(subprocess.run([sys.executable, '-I', '-S', '-c', 'print(6*7)'], capture_output=True, text=True).stdout.strip())
multiprocessing.Lock()
async def f(): return 'loop'
print(asyncio.run(f()), sys.stdin.read(), len(bytearray(20 << 20)), os.getuid(), os.cpu_count() > 0)
"""
    program = SandboxProgram(argv=[sys.executable, "-I", "main.py"], files={"main.py": code.encode()}, stdin=b"in")
    assert said(sandbox.run(program)) == "thread\n42\nloop in 20971520 1000 True"


def test_a_fork_bomb(sandbox) -> None:
    """It reaches its number of processes and is ended with all of them."""
    code = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)\n"
    assert attack(sandbox, code).reason == "processes"


def test_threads_are_counted(sandbox) -> None:
    """A thread is a process to the kernel: there are no more than the limit."""
    code = """
import threading, time
n = 0
try:
    while n < 100: threading.Thread(target=time.sleep, args=(9,), daemon=True).start(); n += 1
except RuntimeError: pass
print(n, flush=True)
import os; os._exit(0)
"""
    assert int(said(attack(sandbox, code))) <= LIMITS.processes


@pytest.mark.parametrize(
    "code",
    [
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "import os\nfor _ in range(5): os.fork()\nx = []\nwhile True: x.append(bytearray(1 << 20))",
        "import mmap\nx = []\nwhile True:\n m = mmap.mmap(-1, 1 << 20); m.write(b'x' * (1 << 20)); x.append(m)",
    ],
    ids=["one", "several", "shared"],
)
def test_a_memory_bomb(sandbox, code) -> None:
    """Of one process or of all together, private or shared."""
    assert attack(sandbox, code, processes=40).reason == "memory"


def test_memory_that_no_limit_counts_cannot_be_had(sandbox) -> None:
    """memfd and System V's segments live on without a process that maps them."""
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def refused(call):
    try: return call() < 0 and ctypes.get_errno() == 1
    except OSError as e: return e.errno == 1
print(refused(lambda: os.memfd_create('x')), refused(lambda: libc.shmget(0, 1 << 20, 0o1600)))
"""
    assert said(attack(sandbox, code)) == "True True"


QUEUED = """
import os, socket, time
def fill():
    kept = []
    try:
        while True: kept.append(socket.socketpair())
    except OSError: pass
    for one in (end for pair in kept for end in pair):
        one.setblocking(False)
        try:
            while True: one.send(bytes(1 << 16))
        except OSError: pass
    time.sleep(30)
for _ in range(8):
    if os.fork() == 0: fill()
fill()
"""
SENT_ALONG = """
import array, os, socket, time
def fill():
    kept = socket.socketpair()
    try:
        while True:
            a, b = socket.socketpair()
            a.setblocking(False)
            try:
                while True: a.send(bytes(1 << 16))
            except BlockingIOError: pass
            kept[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [b.fileno()]))])
            a.close(), b.close()
    except OSError: pass
    time.sleep(30)
for _ in range(2):
    if os.fork() == 0: fill()
fill()
"""


@pytest.mark.parametrize(
    ("code", "megabytes"), [(QUEUED, 120), (SENT_ALONG, 48)], ids=["in queues", "of sockets in queues"]
)
def test_memory_in_queues_is_counted(sandbox, code, megabytes) -> None:
    """What sockets hold is nobody's resident memory; it counts as if each queue were full."""
    assert attack(sandbox, code, memory_bytes=megabytes << 20, wall_s=20).reason == "memory"


def test_queues_cannot_be_made_longer(sandbox) -> None:
    """Of sockets and pipes; nor can pages be put into a pipe, so that they stay when their owner lets them go."""
    code = """
import ctypes, fcntl, mmap, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(call):
    ctypes.set_errno(0)
    try: return call() == -1 and ctypes.get_errno() == 1
    except OSError as e: return e.errno == 1
a, b = socket.socketpair()
r, w = os.pipe()
class Vector(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
page = ctypes.create_string_buffer(4096)
vector = Vector(ctypes.addressof(page), 4096)
print([refused(lambda: a.setsockopt(socket.SOL_SOCKET, o, 4 << 20)) for o in (7, 8, 32, 33)],
      refused(lambda: fcntl.fcntl(w, 1031, 1 << 20)), refused(lambda: libc.vmsplice(w, ctypes.byref(vector), 1, 0)),
      refused(lambda: libc.tee(r, w, 1, 0)))
a.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
print(fcntl.fcntl(w, fcntl.F_GETFD) >= 0, a.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 0)
n = 0
try:
    while n < 1000: os.dup(0); n += 1
except OSError: pass
print(n < 64)
"""
    assert said(attack(sandbox, code)).splitlines() == ["[True, True, True, True] True True True", "True True", "True"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
def test_what_the_machine_has_once_is_not_taken(sandbox) -> None:
    """All of its asynchronous requests, and its disks' time."""
    code = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def refused(*call):
    ctypes.set_errno(0)
    return libc.syscall(*call) == -1 and ctypes.get_errno() == 1
context = ctypes.c_ulong()
print(refused(206, 60000, ctypes.byref(context)), refused(162), refused(306, 0))
"""
    assert said(attack(sandbox, code)) == "True True True"


def test_stdin_is_what_it_was(sandbox) -> None:
    """It lies in memory, and cannot be written or made longer by its name below /proc."""
    code = """
import os
def tries(call):
    try: call(); return 'yes'
    except OSError as e: return 'no'
try: file = os.open('/proc/self/fd/0', os.O_RDWR)
except OSError: print('no no')
else: print(tries(lambda: os.write(file, b'x')), tries(lambda: os.truncate(file, 1 << 20)))
"""
    assert said(attack(sandbox, code)) == "no no"


def test_an_endless_loop(sandbox) -> None:
    """CPU time is counted by the kernel; sleeping ends at the wall's."""
    assert attack(sandbox, "while True: pass", cpu_s=1, wall_s=30).reason == "cpu"
    code = "import signal\nfor n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except (OSError, ValueError): pass\nwhile True: pass"
    assert attack(sandbox, code, cpu_s=1, wall_s=30).reason == "cpu"
    outcome = attack(sandbox, "import time; time.sleep(1000)", wall_s=0.5)
    assert outcome.reason == "wall"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output(sandbox, stream) -> None:
    """As much is kept as the limit says, and the writer is ended."""
    outcome = attack(sandbox, f"import sys\nwhile True: sys.{stream}.write('x' * 65536)")
    assert outcome.reason == "output"
    assert len(outcome.stdout + outcome.stderr) == LIMITS.output_bytes


def test_a_full_disk(sandbox) -> None:
    """What it may write ends: by size, of one file or of many, and by number."""
    code = """
import os
def fill(make):
    n = 0
    try:
        while n < 100000: make(n); n += 1
    except OSError: pass
    return n
def big(n):
    with open(f'big{n}', 'wb') as f: f.write(b'x' * (1 << 20))
a = fill(big)
for n in range(a + 1): os.unlink(f'big{n}')
print(a, fill(lambda n: open(f's{n}', 'w').close()))
"""
    megabytes, files = map(int, said(attack(sandbox, code)).split())
    assert megabytes <= 8
    assert files <= 2048


def test_writing_outside_and_reading_what_is_not_its_own(sandbox, tmp_path, monkeypatch) -> None:
    """Nothing of this machine can be written; of its files only programs and libraries can be seen."""
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    home = Path.home() / ".ssh"
    code = f"""
import os
def tries(path, mode):
    try: open(path, mode).close(); return 'yes'
    except OSError as e: return type(e).__name__
print([tries(p, 'w') for p in ('/x', '/usr/x', '/etc/x', '/dev/x', '/proc/1/comm', {str(tmp_path / "new")!r}, {sys.prefix + "/x"!r})])
print([tries(p, 'r') for p in ('/etc/passwd', '/etc/shadow', {str(secret)!r}, {str(home / "id_rsa")!r}, {str(home)!r}, {str(Path(__file__))!r})])
print(sorted(os.listdir('/')), sorted(os.listdir('/etc')), os.listdir('/tmp'), sorted(os.listdir('/dev')))
for path in ({str(secret)!r}, '/etc/ld.so.cache'):
    for call in (os.unlink, os.chmod, lambda p: os.rename(p, p + 'x')):
        try: call(path, 0o777) if call is os.chmod else call(path); print('done', path)
        except OSError: pass
"""
    lines = said(attack(sandbox, code)).splitlines()
    assert "yes" not in lines[0]
    assert "yes" not in lines[1]
    assert "'home'" not in lines[2]
    assert "['ld.so.cache']" in lines[2]
    assert len(lines) == 3
    assert secret.read_text() == "secret"
    assert not (tmp_path / "new").exists()


def test_environment_and_other_processes(sandbox, monkeypatch) -> None:
    """It sees its own alone."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = f"""
import os, signal
pids = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())
hits = []
for pid in [*range(1, 400), {os.getpid()}]:
    if pid != os.getpid():
        try: os.kill(pid, 0 if pid == 1 else signal.SIGTERM); hits.append(pid)
        except OSError: pass
def reads(path):
    try: return len(open(path, 'rb').read()) > 0
    except OSError: return False
print('secret' in str(os.environ), len(pids), hits, reads('/proc/1/environ'), reads('/proc/1/mem'), os.path.exists('/proc/1/fd/3'))
print(os.path.exists('/proc/kcore'), os.path.exists('/proc/sys'), os.path.exists('/sys/kernel'))
print(sorted(os.listdir('/proc/self/fd')))
"""
    first, second, third = said(attack(sandbox, code)).splitlines()
    assert first == "False 2 [] False False False" or first == "False 2 [1] False False False"
    assert second == "False False False"
    assert third == "['0', '1', '2', '3']"  # the last is the listing's own


def test_the_network(sandbox) -> None:
    """No TCP, UDP, DNS, raw socket, nor an abstract socket of this machine; a server here hears nothing."""
    heard: list[bytes] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        name = f"claw-{os.getpid()}"
        abstract.bind("\0" + name)
        abstract.listen()
        for listener in (tcp, udp, abstract):
            listener.settimeout(0.2)
        code = f"""
import socket
def tries(f):
    try: f(); return 'yes'
    except OSError as e: return type(e).__name__
def unix():
    s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}')
print(tries(lambda: socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 1)),
      tries(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp.getsockname()[1]}))),
      tries(lambda: socket.getaddrinfo('example.com', 80)), tries(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
      tries(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)), tries(lambda: socket.socket(socket.AF_INET6)), tries(unix))
"""
        assert "yes" not in said(attack(sandbox, code))
        for listener in (tcp, abstract):
            with pytest.raises(TimeoutError):
                listener.accept()
        with pytest.raises(TimeoutError):
            heard.append(udp.recv(10))
    assert heard == []


def test_a_daemon_that_outlives_its_test(sandbox) -> None:
    """Twice forked, in a session of its own, deaf to signals, with its pipes closed: it ends with the program."""
    code = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(n, signal.SIG_IGN)
        os.closerange(0, 100)
        while True: time.sleep(1)
    os._exit(0)
print('gone')
"""
    assert said(attack(sandbox, code)) == "gone"


@pytest.mark.parametrize(
    "code",
    [
        "r = libc.ptrace(16, 1, 0, 0)",
        "r = libc.syscall(310, 1, 0, 0, 0, 0, 0)",
        "r = libc.unshare(0x10000000)",
        "r = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
        "r = libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None)",
        "r = libc.syscall(425, 1, 0)",
        "r = libc.syscall(321, 0, 0, 0)",
        "r = libc.chroot(b'/tmp')",
        "r = libc.setuid(0)",
        "r = libc.prctl(24, 0, 0, 0, 0) * 0 + libc.sethostname(b'x', 1)",
    ],
    ids=["ptrace", "vm_readv", "unshare", "clone", "mount", "io_uring", "bpf", "chroot", "setuid", "hostname"],
)
def test_the_kernels_other_doors(sandbox, code) -> None:
    """They fail, and the code goes on."""
    head = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    outcome = attack(sandbox, f"{head}{code}\nprint(r, ctypes.get_errno())")
    result, number = said(outcome).split()
    assert result == "-1"
    assert int(number) in (1, 22)  # EPERM; EINVAL for a user that is not mapped


def test_a_child_may_be_traced_by_nobody(sandbox) -> None:
    """Not even its own: ptrace is not there."""
    code = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.ptrace(0, 0, 0, 0), ctypes.get_errno())"
    assert said(attack(sandbox, code)) == "-1 1"


def test_the_program_cannot_end_its_init_or_say_how_it_ended(sandbox) -> None:
    """Its exit status is what the kernel told its parent, whatever it wrote anywhere."""
    code = """
import os, signal
for n in range(3, 300):
    try: os.write(n, b'ended')
    except OSError: pass
for pid in (1, os.getppid()):
    for n in range(100):
        try: os.write(os.open(f'/proc/{pid}/fd/{n}', os.O_WRONLY), b'ended')
        except OSError: pass
for n in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
    try: os.kill(1, n)
    except OSError: pass
print('PASSED 1 passed in 0.01s')
os._exit(3)
"""
    outcome = attack(sandbox, code)
    assert (outcome.reason, outcome.exit_code) == ("ended", 3)


def test_files_cannot_be_put_outside(sandbox) -> None:
    """By whoever names them."""
    for name in ("../x", "/etc/x", "a/../../x"):
        with pytest.raises(SandboxRefused, match="outside"):
            sandbox.run(SandboxProgram(argv=["true"], files={name: b""}))


def test_a_program_that_is_not_there_is_refused_in_words(sandbox) -> None:
    """And the keeper goes on."""
    with pytest.raises(SandboxRefused, match="No such file"):
        sandbox.run(SandboxProgram(argv=["/no/such/program"]))
    assert sandbox.run(SandboxProgram(argv=["/usr/bin/true"])).exit_code == 0


def test_a_keeper_that_is_killed_takes_its_sandboxes_along() -> None:
    """And the next run has a new one."""
    with Sandbox() as sandbox:
        keeper = sandbox._process.pid
        once_it_runs(lambda: os.kill(keeper, signal.SIGKILL))
        with pytest.raises(SandboxRefused, match="ended"):
            attack(sandbox, "import time; time.sleep(100)", wall_s=60)
        assert said(attack(sandbox, "print(1)")) == "1"


REFUSING = """
import sys
sys.path.insert(0, ROOT)
from claw_r1.consumers.sandbox import kernel, seccomp as f
from claw_r1.consumers.sandbox.sandbox import Sandbox, SandboxRefused
code = [f._word(f.LOAD, f.AT_NUMBER), f._jump(f.JUMP_EQUAL, f.CLONE["x86_64"], 0, 3), f._word(f.LOAD, f.AT_ARGUMENTS[0])]
code += [f._jump(f.JUMP_ANY_BIT, f.NEW_NAMESPACES, 0, 1), f._word(f.RETURN, f.ERRNO | f.EPERM), f._word(f.RETURN, f.ALLOW)]
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
kernel.seccomp(b"".join(code))
try: Sandbox()
except SandboxRefused as error: print(error)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter of this test is written for x86-64")
def test_a_kernel_without_namespaces_is_refused() -> None:
    """In one line, which says what the kernel refused."""
    root = str(Path(__file__).parents[3])
    code = REFUSING.replace("ROOT", repr(root))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    (refusal,) = done.stdout.splitlines()
    assert refusal.startswith("no sandbox can be made here: ")
    assert "Operation not permitted" in refusal


def test_closing_from_another_thread_ends_what_runs() -> None:
    """At once, and nothing is left."""
    sandbox = Sandbox()
    once_it_runs(sandbox.abort)
    with pytest.raises(SandboxRefused):
        attack(sandbox, "import time; time.sleep(100)", wall_s=60)
    sandbox.close()
    deadline_s = time.monotonic() + 1
    while marked() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert marked() == []
