# SPDX-License-Identifier: Apache-2.0
"""What the network sees of a job: its listeners, what was said; ZMTP as far as needed."""
import ctypes
import glob
import os
import select
import socket
import struct
import threading

GREETING = 64  # bytes of a ZMTP 3 greeting
LINK_OPEN = b"PZ\x01\x01"


def listening(pids):
    """(address, port) of every TCP listener of these processes, from /proc."""
    inodes = set()
    for pid in pids:
        for fd in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                link = os.readlink(fd)
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with open(f"/proc/net/{name}") as table:
            lines = table.read().splitlines()[1:]
        for line in lines:
            f = line.split()
            if f[3] == "0A" and f[9] in inodes:
                host, port = f[1].split(":")
                raw = b"".join(struct.pack("<I", int(host[i:i + 8], 16))
                               for i in range(0, len(host), 8))
                found.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found


def greeting(mechanism, server=0):
    return (b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes([server])
            + bytes(31))


def ready(identity=b""):
    def prop(name, value):
        return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    body = b"\x05READY" + prop(b"Socket-Type", b"DEALER") + prop(b"Identity", identity)
    return b"\x04" + bytes([len(body)]) + body


def frame(data):
    return b"\x00" + bytes([len(data)]) + data


def answer(address, data, patience):
    """All that comes back to these bytes until the peer hangs up or is quiet for so long."""
    got = b""
    with socket.create_connection(address, timeout=5) as s:
        try:
            s.sendall(data)
            while select.select([s], [], [], patience)[0]:
                more = s.recv(65536)
                if not more:
                    break
                got += more
        except OSError:
            pass  # hung up on
    return got


def exactly(s, n):
    got = b""
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            raise EOFError(f"hung up on after {got}")
        got += more
    return got


def play_back(address, said):
    """Says again what a ZMTP client with mechanism NULL said. libzmq hangs up on who does not wait
    for its part of the handshake. Returns the connection."""
    s = socket.create_connection(address, timeout=20)
    handshake = GREETING + 2 + said[GREETING + 1]
    s.sendall(said[:handshake])
    exactly(s, exactly(s, GREETING + 2)[-1])
    s.sendall(said[handshake:])
    return s


def with_new_routing_id(said):
    """A second connection with the routing id of one that libzmq knows is dropped by libzmq itself.
    The last 8 of its 25 bytes are random."""
    at = said.index(b"\x08Identity") + 13 + 25
    return said[:at - 8] + os.urandom(8) + said[at:]


def may_capture():
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()
        return True
    except PermissionError:
        return False


def only(address):
    """The program of a packet filter, struct sock_filter: IPv4 from or to this address."""
    ip, = struct.unpack(">I", socket.inet_aton(address))
    load_half, load, jump_equal, give = 0x28, 0x20, 0x15, 0x06
    program = [(load_half, 0, 0, 12), (jump_equal, 0, 5, 0x0800), (load, 0, 0, 26),
               (jump_equal, 2, 0, ip), (load, 0, 0, 30), (jump_equal, 0, 1, ip),
               (give, 0, 0, 1 << 18), (give, 0, 0, 0)]
    return b"".join(struct.pack("=HBBI", *i) for i in program)


class Capture:
    """Every packet of the loopback from and to an address while it runs."""

    def __init__(self, address):
        self.packets = []
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        program = ctypes.create_string_buffer(only(address))
        self.socket.setsockopt(socket.SOL_SOCKET, 26,  # SO_ATTACH_FILTER, struct sock_fprog
                               struct.pack("HL", len(program) // 8, ctypes.addressof(program)))
        self.socket.bind(("lo", 0))
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while True:
            ended = self.ended.is_set()  # then what came before is in the queue, heartbeats go on
            if select.select([self.socket], [], [], 0 if ended else 0.1)[0]:
                data, where = self.socket.recvfrom(70_000)
                if where[2] == socket.PACKET_OUTGOING:  # the loopback shows each twice
                    self.packets.append(data)
            elif ended:
                return

    def stop(self):
        self.ended.set()
        self.thread.join()
        self.socket.close()

    def shows(self, pattern):
        return any(pattern in p for p in self.packets)

    def streams_to(self, port):
        """What each client of this port said, for connections that began during the capture."""
        segments, begin = {}, {}
        for p in self.packets:
            if p[12:14] != b"\x08\x00" or p[23] != 6:
                continue
            tcp = p[14 + 4 * (p[14] & 15):14 + struct.unpack(">H", p[16:18])[0]]
            source, to, seq = struct.unpack(">HHI", tcp[:8])
            if to != port:
                continue
            if tcp[13] & 2:  # SYN
                begin[source] = seq + 1
            elif data := tcp[4 * (tcp[12] >> 4):]:
                segments.setdefault(source, {})[seq] = data
        return [self.join(begin[s], segments.get(s, {})) for s in begin]

    @staticmethod
    def join(begin, segments):
        said = b""
        for offset, data in sorted(((seq - begin) % (1 << 32), d) for seq, d in segments.items()):
            assert offset <= len(said), "the capture lost a packet"
            said = said[:offset] + data + said[offset + len(data):]
        return said
