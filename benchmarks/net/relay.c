/* SPDX-License-Identifier: Apache-2.0 */
/* psrt-net-relay DEVICE DELAY_US LOSS_PERCENT: makes a TUN device and gives every packet that is routed
 * into it back after DELAY_US, in order, or loses it. The kernel of a benchmark machine may have no netem.
 *
 * One read takes a segment as TCP made it, up to 64 KiB (IFF_VNET_HDR with segmentation offload), so that
 * a few thousand system calls a second carry a gigabit. Where packets are lost, they are cut to the MTU
 * first: else a loss would be one of 44 packets in a row.
 *
 * Prints "ready" when the device is there. Ends with its parent. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES ((size_t)64 << 20) /* 20 ms of 25 Gbit/s */
#define PACKET_MAX ((size_t)80 << 10) /* a segment of 64 KiB, its headers, the device's header */
#define BATCH 64                      /* packets read before the due ones are written */

/* In the ring, followed by its bytes. */
typedef struct packet {
    uint64_t due_ns;
    uint64_t length;
} packet_t;

typedef struct relay {
    int fd;
    uint64_t delay_ns;
    uint64_t loss; /* of 2^32 packets */
    uint64_t random;
    uint8_t *ring; /* mapped twice, one after the other: no packet has to be cut at the end */
    size_t head, tail;
} relay_t;

static int fail(const char *what)
{
    fprintf(stderr, "psrt-net-relay: %s: %s\n", what, strerror(errno));
    return -1;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int open_device(const char *name, int offload)
{
    struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR };
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return fail("/dev/net/tun");
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    unsigned long features = TUN_F_CSUM | (offload ? TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN : 0);
    if (!ioctl(fd, TUNSETIFF, &request) && !ioctl(fd, TUNSETOFFLOAD, features)) return fd;
    fail(name);
    close(fd);
    return -1;
}

static uint8_t *map_ring(void)
{
    int fd = memfd_create("packets", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)RING_BYTES)) return NULL;
    const int access = PROT_READ | PROT_WRITE;
    uint8_t *ring = mmap(NULL, 2 * RING_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) return NULL;
    for (size_t i = 0; i < 2; i++)
        if (mmap(ring + i * RING_BYTES, RING_BYTES, access, MAP_SHARED | MAP_FIXED, fd, 0) ==
            MAP_FAILED)
            return NULL;
    return ring;
}

/* Marsaglia's xorshift64; the seed is fixed, so that a run can be repeated. */
static int is_lost(relay_t *r)
{
    r->random ^= r->random << 13;
    r->random ^= r->random >> 7;
    r->random ^= r->random << 17;
    return (r->random >> 32) < r->loss;
}

/* Head and tail only grow; an unsigned difference is what is in the ring. */
static packet_t *packet_at(const relay_t *r, size_t position)
{
    return (packet_t *)(void *)(r->ring + position % RING_BYTES);
}

static size_t packet_bytes(size_t length) { return (sizeof(packet_t) + length + 7) & ~(size_t)7; }

/* 1: a packet was read, 0: none is there. A full ring loses it, as a full queue of a router would. */
static int take(relay_t *r)
{
    static uint8_t dropped[PACKET_MAX];
    int full = RING_BYTES - (r->tail - r->head) < sizeof(packet_t) + PACKET_MAX;
    packet_t *packet = packet_at(r, r->tail);
    ssize_t length = read(r->fd, full ? dropped : (uint8_t *)(packet + 1), PACKET_MAX);
    if (length < 0) return errno == EAGAIN || errno == EINTR ? 0 : fail("read");
    if (full || is_lost(r)) return 1;
    packet->due_ns = now_ns() + r->delay_ns;
    packet->length = (uint64_t)length;
    r->tail += packet_bytes((size_t)length);
    return 1;
}

/* What the kernel refuses is lost. */
static void give_due(relay_t *r)
{
    while (r->head != r->tail) {
        const packet_t *packet = packet_at(r, r->head);
        if (packet->due_ns > now_ns()) return;
        ssize_t written = write(r->fd, packet + 1, packet->length);
        (void)written;
        r->head += packet_bytes(packet->length);
    }
}

static int wait_more(const relay_t *r)
{
    struct pollfd ready = { .fd = r->fd, .events = POLLIN };
    struct timespec left = { 0 };
    if (r->head == r->tail) return ppoll(&ready, 1, NULL, NULL);
    uint64_t due = packet_at(r, r->head)->due_ns, now = now_ns();
    if (due > now) left.tv_sec = (time_t)((due - now) / 1000000000u);
    if (due > now) left.tv_nsec = (long)((due - now) % 1000000000u);
    return ppoll(&ready, 1, &left, NULL);
}

static int run(relay_t *r)
{
    for (;;) {
        int taken = 1;
        for (int i = 0; i < BATCH && taken > 0; i++)
            taken = take(r);
        if (taken < 0) return 1;
        give_due(r);
        if (!taken && wait_more(r) < 0 && errno != EINTR) return fail("poll"), 1;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: psrt-net-relay DEVICE DELAY_US LOSS_PERCENT\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1000ul);
    double loss = strtod(argv[3], NULL);
    relay_t relay = { .delay_ns = strtoull(argv[2], NULL, 10) * 1000,
                      .loss = (uint64_t)(loss / 100 * 4294967296.0),
                      .random = 0x9e3779b97f4a7c15,
                      .ring = map_ring() };
    if (!relay.ring) return fail("memory for packets"), 1;
    relay.fd = open_device(argv[1], relay.loss == 0);
    if (relay.fd < 0) return 1;
    puts("ready");
    fflush(stdout);
    return run(&relay);
}
