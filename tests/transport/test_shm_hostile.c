/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that is broken or hostile: each attack closes its own connection with one line in the log,
 * and the connection of a good peer goes on. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psrt/psrt.h>

#include "transport/shm_rig.h"

/* ---- an attacker ------------------------------------------------------------------------------ */

typedef struct attacker {
    int sock, lane_fd;
    shm_lane_t *own;
    uint64_t head;
} attacker_t;

static int raw_connect(void)
{
    struct sockaddr_un sun = { .sun_family = AF_UNIX };
    uint64_t host;
    char name[40];
    cr_assert(psrti_shm_addr_parse(rig.b.addr, &host, name));
    snprintf(sun.sun_path, sizeof sun.sun_path, "%.60s/%s", rig.dir, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&sun, sizeof sun), 0, "%s", strerror(errno));
    return fd;
}

static void raw_send(int sock, const void *data, size_t len, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (fd >= 0) {
        msg.msg_control = control;
        msg.msg_controllen = sizeof control;
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(cmsg), &fd, sizeof fd);
    }
    cr_assert_eq(sendmsg(sock, &msg, MSG_NOSIGNAL), (ssize_t)len, "%s", strerror(errno));
}

/* Receives and drops; true once the other side closed. */
static bool closed(int sock)
{
    uint8_t buffer[128];
    for (;;) {
        ssize_t n = recv(sock, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
        if (n < 0) return false;
    }
}

static shm_hello_t good_hello(void)
{
    shm_hello_t hello = { .magic = SHM_MAGIC,
                          .version = SHM_VERSION,
                          .kind = SHM_PK_HELLO,
                          .task = 66,
                          .units = SHM_UNITS,
                          .lane_bytes = sizeof(shm_lane_t) };
    memcpy(hello.nonce, rig.nonce, sizeof hello.nonce);
    return hello;
}

static int sealed_memfd(size_t bytes, int seals)
{
    int fd = memfd_create("attack", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Through the handshake as any peer; then it owns a lane into which it may write what it likes. */
static void attacker_open(attacker_t *at)
{
    unsigned up = rig.b.up;
    shm_hello_t hello = good_hello();
    uint8_t ready = SHM_PK_READY;
    at->head = 0;
    at->sock = raw_connect();
    at->lane_fd = sealed_memfd(sizeof *at->own, SEALS);
    at->own = mmap(NULL, sizeof *at->own, PROT_READ | PROT_WRITE, MAP_SHARED, at->lane_fd, 0);
    cr_assert(at->own != MAP_FAILED);
    raw_send(at->sock, &hello, sizeof hello, at->lane_fd);
    struct pollfd answer = { .fd = at->sock, .events = POLLIN };
    RIG_UNTIL(poll(&answer, 1, 0) == 1);
    shm_hello_t welcome;
    cr_assert_eq(recv(at->sock, &welcome, sizeof welcome, 0), (ssize_t)sizeof welcome);
    raw_send(at->sock, &ready, 1, -1);
    RIG_UNTIL(rig.b.up == up + 1);
}

static void attacker_close(attacker_t *at)
{
    munmap(at->own, sizeof *at->own);
    close(at->lane_fd);
    close(at->sock);
}

/* Writes words and bytes of an entry at the head, then its commit word. */
static void attacker_put(attacker_t *at, uint32_t info, const void *body, size_t len,
                         uint32_t units)
{
    size_t off = at->head % SHM_UNITS * SHM_UNIT;
    uint8_t *unit = at->own->ring + off;
    uint32_t commit = (uint32_t)at->head | 0x80000000u;
    memcpy(unit + 4, &info, sizeof info);
    len = PSRTI_MIN(len, sizeof at->own->ring - off - 8);
    if (len > 0) memcpy(unit + 8, body, len);
    atomic_store((_Atomic uint32_t *)unit, commit);
    at->head += units;
}

static void header(uint8_t out[PSRTI_FRAME_BODY_BYTES], uint8_t type, uint64_t length)
{
    psrt_hdr_t hdr = { .type = type, .length = length };
    if (type == PSRTI_T_PUSH) hdr.dtype = PSRT_F32;
    psrti_frame_body_encode(&hdr, out);
}

static void put_inline(attacker_t *at, uint64_t announced, uint32_t len)
{
    uint8_t body[PSRTI_FRAME_BODY_BYTES + 64] = { 0 };
    header(body, PSRTI_T_CTRL, announced);
    attacker_put(at, SHM_INLINE | len << 16, body, sizeof body, (SHM_ENTRY_HEAD + len + 63) / 64);
}

static void put_desc(attacker_t *at, uint32_t seg, uint64_t off, uint64_t len, uint8_t slot)
{
    uint8_t body[PSRTI_FRAME_BODY_BYTES + sizeof(shm_desc_t)];
    shm_desc_t desc = { .seg = seg, .off = off, .len = len };
    header(body, PSRTI_T_PUSH, len / 4);
    memcpy(body + PSRTI_FRAME_BODY_BYTES, &desc, sizeof desc);
    attacker_put(at, SHM_DESC | (uint32_t)slot << 8, body, sizeof body, 2);
}

static void pass_seg(attacker_t *at, uint32_t id, uint64_t announced, size_t bytes, int seals)
{
    shm_seg_packet_t packet = { .kind = SHM_PK_SEG, .id = id, .bytes = announced };
    int fd = sealed_memfd(bytes, seals);
    raw_send(at->sock, &packet, sizeof packet, fd);
    close(fd);
}

/* ---- the handshake ---------------------------------------------------------------------------- */

static void expect_refusal(const void *data, size_t len, int fd, unsigned warnings,
                           const char *what)
{
    unsigned before = rig.warnings, up = rig.b.up;
    int sock = raw_connect();
    raw_send(sock, data, len, fd);
    RIG_UNTIL(closed(sock));
    close(sock);
    cr_assert_eq(rig.warnings, before + warnings, "%s: %u lines, last %s", what,
                 rig.warnings - before, rig.warning);
    cr_assert_eq(rig.b.up, up, "%s: accepted", what);
}

Test(shm_hostile, truncated_handshake, .timeout = 120)
{
    rig_open();
    rig_connect();
    shm_hello_t hello = good_hello();
    uint8_t longer[4096] = { 0 };
    memcpy(longer, &hello, sizeof hello);
    int fd = sealed_memfd(sizeof(shm_lane_t), SEALS);
    unsigned fds = open_fds();
    expect_refusal(&hello, 0, -1, 0, "no bytes"); /* the same as closing */
    for (size_t len = 1; len < sizeof hello; len++)
        expect_refusal(&hello, len, fd, 1, "short hello");
    expect_refusal(longer, sizeof hello + 1, fd, 1, "long hello");
    expect_refusal(longer, sizeof longer, fd, 1, "long hello");
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    expect_refusal(http, sizeof http - 1, -1, 1, "HTTP");
    cr_assert_eq(open_fds(), fds);
    close(fd);
    rig_check_traffic();
    cr_assert_eq(rig.b.lost, 0);
    rig_close();
}

Test(shm_hostile, wrong_handshake, .timeout = 120)
{
    rig_open();
    rig_connect();
    int good = sealed_memfd(sizeof(shm_lane_t), SEALS), pipes[2];
    int unsealed = sealed_memfd(sizeof(shm_lane_t), F_SEAL_SHRINK);
    int small = sealed_memfd(sizeof(shm_lane_t) - 4096, SEALS);
    int large = sealed_memfd(sizeof(shm_lane_t) + 4096, SEALS);
    cr_assert_eq(pipe(pipes), 0);
    for (size_t byte = 0; byte < offsetof(shm_hello_t, incarnation); byte++) {
        shm_hello_t hello = good_hello();
        if (byte >= offsetof(shm_hello_t, task) && byte < offsetof(shm_hello_t, units)) continue;
        ((uint8_t *)&hello)[byte] ^= 0x41;
        expect_refusal(&hello, sizeof hello, good, 1, "changed byte");
    }
    shm_hello_t hello = good_hello();
    expect_refusal(&hello, sizeof hello, -1, 1, "no lane");
    expect_refusal(&hello, sizeof hello, unsealed, 1, "unsealed lane");
    cr_assert(strstr(rig.warning, "sealed"), "%s", rig.warning);
    expect_refusal(&hello, sizeof hello, small, 1, "small lane");
    expect_refusal(&hello, sizeof hello, large, 1, "large lane");
    expect_refusal(&hello, sizeof hello, pipes[0], 1, "pipe");
    hello.lane_bytes = UINT64_MAX;
    expect_refusal(&hello, sizeof hello, good, 1, "endless lane");
    close(good), close(unsealed), close(small), close(large), close(pipes[0]), close(pipes[1]);
    rig_check_traffic();
    rig_close();
}

Test(shm_hostile, foreign_job, .timeout = 120)
{
    rig_open();
    rig_connect();
    side_t stranger;
    uint8_t nonce[16];
    psrt_ep_t *ep;
    pattern(nonce, sizeof nonce, 12345);
    cr_assert_eq(side_open(&stranger, rig.dir, nonce, 0), PSRT_OK);
    cr_assert_eq(psrti_transport_shm.ep_open(stranger.iface, rig.b.addr, &ep), PSRT_OK);
    while (!stranger.lost) {
        psrti_transport_shm.progress(stranger.iface);
        rig_pump();
    }
    cr_assert_eq(stranger.why, PSRT_ERR_REFUSED);
    cr_assert_eq(stranger.up, 0);
    cr_assert_eq(rig.b.up, 1);
    cr_assert_eq(rig.warnings, 2, "one line at each side, not %u", rig.warnings);
    side_close(&stranger);
    rig_check_traffic();
    rig_close();
}

/* Even where the modes of directory and socket were opened by mistake. */
Test(shm_hostile, another_user, .timeout = 120)
{
    char path[600];
    int result = 0;
    if (geteuid() != 0) return; /* only root can become another user */
    rig_open();
    rig_connect();
    snprintf(path, sizeof path, "%s/%s", rig.dir, ((shm_iface_t *)rig.b.iface)->name);
    cr_assert(chmod(rig.dir, 0755) == 0 && chmod(path, 0666) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        shm_hello_t hello = good_hello();
        if (setresuid(65534, 65534, 65534) != 0) _exit(9);
        int sock = raw_connect();
        raw_send(sock, &hello, sizeof hello, -1);
        struct pollfd end = { .fd = sock, .events = POLLIN };
        _exit(poll(&end, 1, 60000) == 1 && closed(sock) ? 0 : 1);
    }
    RIG_UNTIL(waitpid(pid, &result, WNOHANG) == pid);
    cr_assert_eq(result, 0, "%x", result);
    cr_assert_eq(rig.warnings, 1);
    cr_assert(strstr(rig.warning, "65534"), "%s", rig.warning);
    cr_assert_eq(rig.b.up, 1);
    rig_check_traffic();
    rig_close();
}

/* ---- the lane --------------------------------------------------------------------------------- */

static void attack_commit(attacker_t *at)
{
    atomic_store((_Atomic uint32_t *)at->own->ring, 0x80000001u);
}

static void attack_kind(attacker_t *at) { attacker_put(at, 77, NULL, 0, 1); }
static void attack_long_inline(attacker_t *at) { put_inline(at, SHM_EAGER + 1, SHM_EAGER + 1); }
static void attack_longest_inline(attacker_t *at) { put_inline(at, 0xffff, 0xffff); }
static void attack_length(attacker_t *at) { put_inline(at, 41, 40); }
static void attack_huge_length(attacker_t *at) { put_inline(at, UINT64_MAX, 40); }
static void attack_pad_at_start(attacker_t *at)
{
    attacker_put(at, SHM_PAD | SHM_UNITS << 16, NULL, 0, 0);
}

static void attack_end_of_ring(attacker_t *at)
{
    for (unsigned i = 0; i < (SHM_UNITS - 2) / 2; i++)
        put_inline(at, 40, 40);
    RIG_UNTIL(rig.b.messages >= (SHM_UNITS - 2) / 2);
    put_inline(at, 200, 200); /* five units where two are left */
}

static void attack_pad_length(attacker_t *at)
{
    for (unsigned i = 0; i < (SHM_UNITS - 2) / 2; i++)
        put_inline(at, 40, 40);
    RIG_UNTIL(rig.b.messages >= (SHM_UNITS - 2) / 2);
    attacker_put(at, SHM_PAD | 1 << 16, NULL, 0, 1);
}

static void attack_version(attacker_t *at)
{
    uint8_t body[PSRTI_FRAME_BODY_BYTES];
    header(body, PSRTI_T_CTRL, 0);
    body[0] ^= 1;
    attacker_put(at, SHM_INLINE, body, sizeof body, 1);
}

static void attack_type(attacker_t *at)
{
    uint8_t body[PSRTI_FRAME_BODY_BYTES];
    psrt_hdr_t hdr = { .type = PSRTI_T_MAX + 1 };
    psrti_frame_body_encode(&hdr, body);
    attacker_put(at, SHM_INLINE, body, sizeof body, 1);
}

static void attack_no_segment(attacker_t *at) { put_desc(at, 5, 0, 4096, 0); }

static void attack_outside(attacker_t *at)
{
    pass_seg(at, 5, 65536, 65536, SEALS);
    put_desc(at, 5, 65536 - 4096 + 4, 4096, 0);
}

static void attack_overflow(attacker_t *at)
{
    pass_seg(at, 5, 65536, 65536, SEALS);
    put_desc(at, 5, UINT64_MAX - 4095, 8192, 0);
}

static void attack_small_desc(attacker_t *at)
{
    pass_seg(at, 5, 65536, 65536, SEALS);
    put_desc(at, 5, 0, 4, 0);
}

static void attack_max_message(attacker_t *at)
{
    pass_seg(at, 5, 8u << 20, 8u << 20, SEALS);
    put_desc(at, 5, 0, (4u << 20) + 4, 0); /* the limit of the rig is 4 MiB */
}

static void attack_slot_twice(attacker_t *at)
{
    pass_seg(at, 5, 65536, 65536, SEALS);
    rig.b.verdict = PSRT_RX_HOLD;
    put_desc(at, 5, 0, 4096, 9);
    put_desc(at, 5, 8192, 4096, 9);
}

static void attack_free_unknown(attacker_t *at)
{
    uint32_t id = 3;
    attacker_put(at, SHM_FREE, &id, sizeof id, 1);
}

static void attack_free_twice(attacker_t *at)
{
    uint32_t id = 5;
    pass_seg(at, 5, 65536, 65536, SEALS);
    attacker_put(at, SHM_FREE, &id, sizeof id, 1);
    attacker_put(at, SHM_FREE, &id, sizeof id, 1);
}

static void attack_retire_nothing(attacker_t *at)
{
    atomic_store(&at->own->retired[0], 1u << 8 | 4);
}
static void attack_retire_garbage(attacker_t *at)
{
    atomic_store(&at->own->retired[0], 0xdeadbeefu);
}

static void attack_consumed(attacker_t *at)
{
    psrt_hdr_t hdr = { .type = PSRTI_T_ACK };
    atomic_store(&at->own->consumed, 1ull << 40);
    for (unsigned i = 0; i < SHM_UNITS; i++)
        if (psrti_transport_shm.send(rig.b.ep, &hdr, NULL, 0, 0, NULL) != PSRT_OK) return;
}

static void attack_same_segment(attacker_t *at)
{
    pass_seg(at, 5, 65536, 65536, SEALS);
    pass_seg(at, 5, 65536, 65536, SEALS);
}

static void attack_segment_zero(attacker_t *at) { pass_seg(at, 0, 65536, 65536, SEALS); }
static void attack_segment_size(attacker_t *at) { pass_seg(at, 5, 1ull << 50, 65536, SEALS); }
static void attack_segment_empty(attacker_t *at) { pass_seg(at, 5, 0, 0, SEALS); }
static void attack_segment_unsealed(attacker_t *at) { pass_seg(at, 5, 65536, 65536, F_SEAL_GROW); }
static void attack_packet(attacker_t *at) { raw_send(at->sock, "hello, world", 12, -1); }

static void attack_no_descriptor(attacker_t *at)
{
    shm_seg_packet_t packet = { .kind = SHM_PK_SEG, .id = 5, .bytes = 65536 };
    raw_send(at->sock, &packet, sizeof packet, -1);
}

static void attack_long_packet(attacker_t *at)
{
    uint8_t zeros[3000] = { 0 };
    raw_send(at->sock, zeros, sizeof zeros, -1);
}

static const struct {
    const char *name;
    void (*run)(attacker_t *at);
    psrt_status_t why;
} attacks[] = {
    { "commit word", attack_commit, PSRT_ERR_PROTOCOL },
    { "unknown kind", attack_kind, PSRT_ERR_PROTOCOL },
    { "inline over eager", attack_long_inline, PSRT_ERR_PROTOCOL },
    { "inline of 65535", attack_longest_inline, PSRT_ERR_PROTOCOL },
    { "length against header", attack_length, PSRT_ERR_PROTOCOL },
    { "length 2^64-1", attack_huge_length, PSRT_ERR_PROTOCOL },
    { "pad at the start", attack_pad_at_start, PSRT_ERR_PROTOCOL },
    { "entry over the end", attack_end_of_ring, PSRT_ERR_PROTOCOL },
    { "pad of another length", attack_pad_length, PSRT_ERR_PROTOCOL },
    { "header version", attack_version, PSRT_ERR_PROTOCOL },
    { "frame type", attack_type, PSRT_ERR_PROTOCOL },
    { "unknown segment", attack_no_segment, PSRT_ERR_PROTOCOL },
    { "descriptor outside", attack_outside, PSRT_ERR_PROTOCOL },
    { "descriptor overflow", attack_overflow, PSRT_ERR_PROTOCOL },
    { "small descriptor", attack_small_desc, PSRT_ERR_PROTOCOL },
    { "over max_message", attack_max_message, PSRT_ERR_PROTOCOL },
    { "slot twice", attack_slot_twice, PSRT_ERR_PROTOCOL },
    { "free unknown", attack_free_unknown, PSRT_ERR_PROTOCOL },
    { "free twice", attack_free_twice, PSRT_ERR_PROTOCOL },
    { "retire what was not sent", attack_retire_nothing, PSRT_ERR_PROTOCOL },
    { "retire garbage", attack_retire_garbage, PSRT_ERR_PROTOCOL },
    { "consumed too much", attack_consumed, PSRT_ERR_PROTOCOL },
    { "segment twice", attack_same_segment, PSRT_ERR_PROTOCOL },
    { "segment 0", attack_segment_zero, PSRT_ERR_PROTOCOL },
    { "segment of another size", attack_segment_size, PSRT_ERR_PROTOCOL },
    { "empty segment", attack_segment_empty, PSRT_ERR_PROTOCOL },
    { "unsealed segment", attack_segment_unsealed, PSRT_ERR_PROTOCOL },
    { "packet", attack_packet, PSRT_ERR_PROTOCOL },
    { "long packet", attack_long_packet, PSRT_ERR_PROTOCOL },
    { "segment without descriptor", attack_no_descriptor, PSRT_ERR_LIMIT },
};

Test(shm_hostile, lane, .timeout = 240)
{
    rig.max_message = 4u << 20;
    for (size_t i = 0; i < PSRTI_COUNT(attacks); i++) {
        rig_open();
        rig_connect();
        attacker_t at;
        attacker_open(&at);
        attacks[i].run(&at);
        RIG_UNTIL(rig.b.lost == 1);
        cr_assert_eq(rig.b.why, attacks[i].why, "%s: %d", attacks[i].name, (int)rig.b.why);
        cr_assert_eq(rig.warnings, 1, "%s: %u lines, last %s", attacks[i].name, rig.warnings,
                     rig.warning);
        RIG_UNTIL(closed(at.sock));
        rig.b.verdict = PSRT_RX_DONE;
        rig_check_traffic();
        cr_assert_eq(rig.a.lost, 0, "%s", attacks[i].name);
        attacker_close(&at);
        rig_close();
    }
}

/* Valid entries with random bits flipped, in the ring and in the words: anything but harm. */
Test(shm_hostile, random_bits, .timeout = 240)
{
    uint64_t random = 20240229, losses = 0;
    rig.max_message = 4u << 20;
    rig_open();
    rig_connect();
    for (unsigned round = 0; round < 400; round++) {
        attacker_t at;
        attacker_open(&at);
        unsigned lost = rig.b.lost;
        pass_seg(&at, 5, 65536, 65536, SEALS);
        for (unsigned i = 0; i < 4; i++) {
            uint64_t head = at.head;
            if (i % 2)
                put_desc(&at, 5, 4096 * i, 4096, (uint8_t)i);
            else
                put_inline(&at, 40, 40);
            random = psrti_mix64(random);
            at.own->ring[head * SHM_UNIT + random % 100] ^= (uint8_t)(1u << (random >> 32) % 8);
            rig_pump();
        }
        for (unsigned i = 0; i < 8; i++) {
            random = psrti_mix64(random);
            ((uint8_t *)at.own)[random % sizeof(shm_lane_t)] ^= (uint8_t)(random >> 40);
            rig_pump();
        }
        losses += rig.b.lost - lost;
        attacker_close(&at);
        RIG_UNTIL(rig.b.lost == lost + 1);
    }
    cr_assert(losses > 100, "only %u rounds did damage", (unsigned)losses);
    rig_check_traffic();
    rig_close();
}

/* Descriptors that come with packets that do not want them are closed. */
Test(shm_hostile, descriptors, .timeout = 120)
{
    rig_open();
    rig_connect();
    unsigned fds = open_fds();
    for (unsigned i = 0; i < 100; i++) {
        uint8_t byte = SHM_PK_WAKE;
        unsigned lost = rig.b.lost;
        attacker_t at;
        attacker_open(&at);
        raw_send(at.sock, &byte, 1, at.lane_fd);
        RIG_UNTIL(rig.b.lost == lost + 1);
        attacker_close(&at);
    }
    RIG_UNTIL(open_fds() == fds);
    rig_check_traffic();
    rig_close();
}
