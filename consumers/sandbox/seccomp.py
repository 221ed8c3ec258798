"""The system calls denied to code in the sandbox, as a seccomp program. Pure.

They are those that look into other processes, make namespaces or mounts, load code into the kernel, keep
memory that no limit counts, use global resources of the machine (AIO requests, disk time), or open a socket
that is not a file of this machine; and settings that lengthen a queue. They fail with EPERM; clone3, whose
flags a filter cannot see, with ENOSYS, so that libc takes clone. Another architecture's calls end the process.
"""

import platform
import struct

EPERM, ENOSYS = 1, 38
AF_UNIX = 1
NEW_NAMESPACES = 0x7E020000
"""All CLONE_NEW* flags that clone takes."""
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, JUMP_EQUAL, JUMP_ABOVE, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
AT_NUMBER, AT_ARCHITECTURE, AT_ARGUMENTS = 0, 4, (16, 24, 32)
X32 = 0x40000000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

DENIED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "vmsplice": (278, 75),
    "tee": (276, 77),
    "io_setup": (206, 0),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "syslog": (103, 116),
    "personality": (135, 92),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "vhangup": (153, 58),
}
"""Name -> number on x86-64 and on arm64 (None: not there)."""
CLONE3 = 435
CLONE = {"x86_64": 56, "aarch64": 220}
SOCKET = {"x86_64": 41, "aarch64": 198}
QUEUES: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "setsockopt": (54, 208, 2, (7, 8, 32, 33)),  # SO_SNDBUF, SO_RCVBUF, and both by force
    "fcntl": (72, 25, 1, (1031,)),  # F_SETPIPE_SZ
}
"""Name -> numbers as above, the setting's argument, and refused values. `keeper.queues` counts
queues without these."""


def program(machine: str = "") -> bytes:
    """For this machine, or another of `ARCHITECTURES`. Raises KeyError or ValueError for one that we do not know."""
    machine = machine or platform.machine()
    column = list(ARCHITECTURES).index(machine)
    code = [
        _word(LOAD, AT_ARCHITECTURE),
        _jump(JUMP_EQUAL, ARCHITECTURES[machine], 1, 0),
        _word(RETURN, KILL_PROCESS),
        _word(LOAD, AT_NUMBER),
    ]
    if machine == "x86_64":
        code += [_jump(JUMP_ABOVE, X32, 0, 1), _word(RETURN, KILL_PROCESS)]
    for number in (numbers[column] for numbers in DENIED.values()):
        code += [] if number is None else [_jump(JUMP_EQUAL, number, 0, 1), _word(RETURN, ERRNO | EPERM)]
    for *numbers, argument, options in QUEUES.values():
        refusals = [word for one in options for word in (_jump(JUMP_EQUAL, one, 0, 1), _word(RETURN, ERRNO | EPERM))]
        code += [_jump(JUMP_EQUAL, numbers[column], 0, len(refusals) + 2), _word(LOAD, AT_ARGUMENTS[argument])]
        code += [*refusals, _word(RETURN, ALLOW)]
    code += [_jump(JUMP_EQUAL, CLONE3, 0, 1), _word(RETURN, ERRNO | ENOSYS)]
    code += [_jump(JUMP_EQUAL, CLONE[machine], 0, 4), _word(LOAD, AT_ARGUMENTS[0])]
    code += [_jump(JUMP_ANY_BIT, NEW_NAMESPACES, 0, 1), _word(RETURN, ERRNO | EPERM), _word(RETURN, ALLOW)]
    code += [_jump(JUMP_EQUAL, SOCKET[machine], 0, 3), _word(LOAD, AT_ARGUMENTS[0])]
    code += [_jump(JUMP_EQUAL, AF_UNIX, 1, 0), _word(RETURN, ERRNO | EPERM), _word(RETURN, ALLOW)]
    return b"".join(code)


def _word(operation: int, value: int) -> bytes:
    return struct.pack("=HBBI", operation, 0, 0, value)


def _jump(operation: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, value)
