/* SPDX-License-Identifier: Apache-2.0 */
/* A peer over shared memory that does as it likes. Input: mode | verdicts on messages 4 | events, each a
 * byte that says what and its operands: writes to the peer's lane, entries and acknowledgements of the right
 * form, packets with descriptors, changes that happen at a later load (hostile.h); polls, sends and
 * releases of ours in between. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/list.h"
#include "base/memfd.h"
#include "fuzz.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"

#define SEGMENTS 3
#define OWN_BYTES 65536u
#define HELD 32
#define SENDS 64

enum { MODE_HANDSHAKE = 1, MODE_DIALLER = 2 };
enum { POLL, WRITE, ENTRY, RETIRE, CONSUME, PACKET, SEGMENT, CHANGE, SEND, RELEASE, FREED, EVENTS };

/* A write of 4 bytes, at once before a later load. */
typedef struct change {
    unsigned loads; /* until then */
    unsigned
        at; /* a word of the entry that is read next; from NEAR on one of the lane's own words */
    uint32_t value;
} change_t;
#define NEAR 0xc0u

/* What outlives an input. */
static shm_iface_t *iface;
static const psrt_transport_ops_t *const shm = &psrti_transport_shm;
static int lane_fd, segment_fd[SEGMENTS];
static shm_lane_t *lane; /* the peer's, as the peer sees it */
static const uint64_t segment_bytes[SEGMENTS] = { 4096, 65536, 8192 };

static struct {
    shm_ep_t *ep; /* NULL: lost and closed */
    int sock;     /* the peer's end */
    uint64_t head;
    uint32_t retired, verdicts;
    change_t change[16];
    unsigned changes;
    psrt_msg_t held[HELD];
    unsigned nheld;
    uint8_t *own;        /* memory of mem_alloc */
    psrt_tx_t tx[SENDS]; /* in flight, or done */
    unsigned sent, done;
    int up, lost;
    int fds_before; /* descriptors, without the arena's */
} fx;

/* ---- the peer changes its memory --------------------------------------------------------------- */

static void write_lane(uint32_t at, const void *data, size_t size)
{
    at %= sizeof *lane;
    size = PSRTI_MIN(size, sizeof *lane - at);
    if (size) memcpy((uint8_t *)lane + at, data, size);
}

void fuzz_before_load(void); /* of hostile.h, which is not for the memory accesses here */

static uint32_t place_of(const change_t *change)
{
    static const uint32_t words[] = {
        offsetof(shm_lane_t, closed),   offsetof(shm_lane_t, sleeping),
        offsetof(shm_lane_t, consumed), offsetof(shm_lane_t, consumed) + 4,
        offsetof(shm_lane_t, reading),  offsetof(shm_lane_t, reading) + 28,
        offsetof(shm_lane_t, retired),  offsetof(shm_lane_t, retired) + 4,
    };
    uint64_t pos = fx.ep ? fx.ep->pos : 0;
    if (change->at >= NEAR) return words[change->at % PSRTI_COUNT(words)];
    return (uint32_t)(offsetof(shm_lane_t, ring) + pos % SHM_UNITS * SHM_UNIT + 4 * change->at);
}

void fuzz_before_load(void)
{
    if (fx.changes == 0 || fx.change[0].loads-- > 0) return;
    change_t now = fx.change[0];
    memmove(fx.change, fx.change + 1, --fx.changes * sizeof now);
    write_lane(place_of(&now), &now.value, sizeof now.value);
}

/* ---- what we are told -------------------------------------------------------------------------- */

static int in_segment(const psrt_msg_t *msg)
{
    size_t pos = 0;
    for (shm_rseg_t *seg; (seg = psrti_map_next(&fx.ep->rsegs, &pos, NULL));)
        if ((const uint8_t *)msg->data >= seg->base &&
            (const uint8_t *)msg->data + msg->len <= seg->base + seg->size)
            return 1;
    return 0;
}

static void read_all(const psrt_msg_t *msg)
{
    volatile uint8_t sum = 0;
    for (uint64_t i = 0; i < msg->len; i += i + 64 < msg->len ? 64 : 1)
        sum ^= ((const uint8_t *)msg->data)[i];
    (void)sum;
}

static psrt_rx_t on_msg(void *arg, psrt_msg_t *msg)
{
    uint64_t announced;
    (void)arg;
    FUZZ_ASSERT(fx.up && !fx.lost && msg->ep == &fx.ep->super);
    fuzz_check_header(&msg->hdr);
    FUZZ_ASSERT(psrti_frame_payload(&msg->hdr, &announced) == PSRT_OK && announced == msg->len);
    FUZZ_ASSERT(msg->len <= iface->params.max_message && (msg->len == 0) == !msg->data);
    if (msg->len) read_all(msg);
    int values = msg->hdr.type == PSRTI_T_PUSH || msg->hdr.type == PSRTI_T_INIT ||
                 msg->hdr.type == PSRTI_T_VALUE || msg->hdr.type == PSRTI_T_COLL;
    if (msg->len) FUZZ_ASSERT(in_segment(msg) == (values && msg->len > SHM_EAGER));
    fuzz_accept();
    unsigned verdict = fx.verdicts & 3;
    fx.verdicts >>= 2;
    if (verdict == 3) return PSRT_RX_BAD;
    if (verdict == 0 || fx.nheld == HELD) return PSRT_RX_DONE;
    fx.held[fx.nheld++] = *msg;
    return PSRT_RX_HOLD;
}

static void on_ep(void *arg, psrt_ep_t *ep, psrt_ep_event_t event, psrt_status_t status)
{
    (void)arg;
    FUZZ_ASSERT(ep == &fx.ep->super && !fx.lost);
    if (event == PSRT_EP_UP) {
        FUZZ_ASSERT(!fx.up++);
    } else if (event == PSRT_EP_LOST) {
        FUZZ_ASSERT(status != PSRT_OK);
        fx.lost = 1;
        fuzz_refuse();
        shm->ep_close(ep);
    }
}

static void on_done(psrt_tx_t *tx, psrt_status_t status)
{
    (void)status;
    FUZZ_ASSERT(tx->done);
    tx->done = NULL; /* once */
    fx.done++;
}

/* ---- an endpoint ------------------------------------------------------------------------------- */

static int sealed(uint64_t bytes, int seals)
{
    int fd = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FUZZ_ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    FUZZ_ASSERT(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void close_iface(void) { shm->iface_close(&iface->super); }

static void open_iface(void)
{
    psrt_iface_params_t params = { .size = sizeof params,
                                   .on_msg = on_msg,
                                   .on_ep = on_ep,
                                   .listen_fd = -1,
                                   .task = 1,
                                   .arena = 65536,
                                   .window = 65536,
                                   .max_message = 32768 };
    psrt_iface_t *opened;
    FUZZ_ASSERT(shm->iface_open(&params, &opened) == PSRT_OK);
    iface = (shm_iface_t *)opened;
    atexit(close_iface); /* removes its directory */
    lane_fd = sealed(sizeof *lane, F_SEAL_SHRINK | F_SEAL_GROW);
    lane = mmap(NULL, sizeof *lane, PROT_READ | PROT_WRITE, MAP_SHARED, lane_fd, 0);
    FUZZ_ASSERT(lane != MAP_FAILED);
    for (unsigned i = 0; i < SEGMENTS; i++) /* the last one can shrink */
        segment_fd[i] =
            sealed(segment_bytes[i], i + 1 < SEGMENTS ? F_SEAL_SHRINK | F_SEAL_GROW : F_SEAL_GROW);
}

static void open_ep(unsigned mode)
{
    int pair[2];
    FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    memset(lane, 0, sizeof *lane);
    shm_state_t state = mode & MODE_DIALLER ? SHM_WELCOME : SHM_HELLO;
    fx.ep = psrti_shm_ep_new(iface, state);
    FUZZ_ASSERT(fx.ep);
    fx.ep->sock = pair[0];
    fx.sock = pair[1];
    void *base;
    const char *why;
    int fd;
    if (mode & (MODE_HANDSHAKE | MODE_DIALLER)) {
        if (!(mode & MODE_DIALLER)) return;
        FUZZ_ASSERT(psrti_memfd_create(sizeof *lane, false, &fd, &base) == PSRT_OK);
        fx.ep->own = base; /* as if HELLO had been said */
        close(fd);
        return;
    }
    FUZZ_ASSERT(psrti_memfd_create(sizeof *lane, false, &fd, &base) == PSRT_OK);
    fx.ep->own = base;
    close(fd);
    FUZZ_ASSERT(psrti_memfd_map(lane_fd, sizeof *lane, &base, &why) == PSRT_OK);
    fx.ep->peer = base;
    psrti_shm_ep_up(fx.ep);
}

/* As progress does. The endpoint may be gone afterwards. */
static void turn(void (*act)(shm_ep_t *ep))
{
    if (!fx.ep) return;
    iface->in_progress = true;
    act(fx.ep);
    iface->in_progress = false;
    if (fx.lost || fx.ep->state > SHM_UP) fx.ep = NULL;
    if (iface->dead > 0) psrti_shm_reap(iface);
    if (!fx.ep) return;
    FUZZ_ASSERT(fx.ep->head - fx.ep->tail <= SHM_UNITS);
    FUZZ_ASSERT(fx.ep->free_count <= SHM_SLOTS);
}

static void poll_lane(shm_ep_t *ep) { (void)psrti_shm_ep_poll(ep); }

/* ---- events ------------------------------------------------------------------------------------ */

static void write_bytes(fuzz_in_t *in)
{
    uint32_t at = fuzz_u32(in);
    size_t size = fuzz_u8(in);
    uint8_t *data = fuzz_bytes(in, size);
    write_lane(at, data, size);
    free(data);
}

static void commit(uint32_t units, uint32_t info)
{
    uint32_t at = (uint32_t)(offsetof(shm_lane_t, ring) + fx.head % SHM_UNITS * SHM_UNIT);
    uint32_t words[2] = { (uint32_t)fx.head | 0x80000000u, info };
    write_lane(at, words, sizeof words);
    fx.head += units;
}

/* An entry of the right form: its header is mended, what it says is the input's. */
static void entry(fuzz_in_t *in)
{
    uint8_t kind = fuzz_u8(in), slot = fuzz_u8(in), body[SHM_ENTRY_HEAD + SHM_EAGER] = { 0 };
    uint32_t len = fuzz_u16(in), left = SHM_UNITS - (uint32_t)(fx.head % SHM_UNITS);
    uint8_t *header = fuzz_bytes(in, PSRTI_FRAME_BYTES);
    shm_desc_t desc = { .seg = fuzz_u8(in), .off = fuzz_u32(in), .len = fuzz_u32(in) };
    if (kind != SHM_FREE) fuzz_mend_header(header);
    memcpy(body + 8, kind == SHM_FREE ? header : header + 2, PSRTI_FRAME_BODY_BYTES);
    memcpy(body + SHM_ENTRY_HEAD, &desc, sizeof desc);
    free(header);
    uint32_t units = kind == SHM_INLINE ? (SHM_ENTRY_HEAD + len + SHM_UNIT - 1) / SHM_UNIT
                     : kind == SHM_DESC ? 2
                     : kind == SHM_PAD  ? left
                                        : 1;
    uint32_t at = (uint32_t)(offsetof(shm_lane_t, ring) + fx.head % SHM_UNITS * SHM_UNIT);
    write_lane(at, body, PSRTI_MIN(sizeof body, (size_t)left * SHM_UNIT));
    uint32_t next = 0;
    write_lane((uint32_t)(offsetof(shm_lane_t, ring) + (fx.head + units) % SHM_UNITS * SHM_UNIT),
               &next, sizeof next);
    commit(units, kind | (uint32_t)slot << 8 | (kind == SHM_PAD ? left : len) << 16);
}

static void packet(const void *data, size_t size, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = size };
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
    (void)sendmsg(fx.sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void packet_of(fuzz_in_t *in)
{
    unsigned which = fuzz_u8(in);
    size_t size = fuzz_u8(in);
    uint8_t *data = fuzz_bytes(in, size);
    packet(data, size, which == 0 ? -1 : which == 1 ? lane_fd : segment_fd[which % SEGMENTS]);
    free(data);
    turn(psrti_shm_sock_read);
}

static void segment(fuzz_in_t *in)
{
    unsigned which = fuzz_u8(in) % SEGMENTS;
    shm_seg_packet_t p = { .kind = SHM_PK_SEG, .id = fuzz_u8(in), .bytes = segment_bytes[which] };
    packet(&p, sizeof p, segment_fd[which]);
}

static void add_change(fuzz_in_t *in)
{
    change_t change = { .loads = fuzz_u8(in) % 32, .at = fuzz_u8(in), .value = fuzz_u32(in) };
    if (fx.changes < PSRTI_COUNT(fx.change)) fx.change[fx.changes++] = change;
}

/* Ours: small and copied, of the segment, or a copy in the arena. */
static void send_some(fuzz_in_t *in)
{
    static const uint8_t plain[32768];
    unsigned how = fuzz_u8(in), times = 1 + (how >> 3); /* so that the ring gets full */
    uint64_t len = fuzz_u16(in) % 32769 / 4 * 4;
    int type = how & 1 ? PSRTI_T_PUSH : PSRTI_T_VALUE;
    void *own;
    if (!fx.ep) return;
    if (how & 2 && !fx.own) {
        FUZZ_ASSERT(shm->mem_alloc(&iface->super, OWN_BYTES, &own) == PSRT_OK);
        fx.own = own;
    }
    psrt_hdr_t hdr = { .type = (uint8_t)type, .dtype = PSRT_F32, .length = len / 4 };
    const uint8_t *data = how & 2 ? fx.own + len % 4096 / 4 * 4 : plain;
    for (; times > 0 && fx.sent < SENDS; times--) {
        psrt_tx_t *tx = &fx.tx[fx.sent];
        *tx = (psrt_tx_t){ .done = on_done };
        if (shm->send(&fx.ep->super, &hdr, data, len, 0, tx) == PSRT_IN_PROGRESS) fx.sent++;
    }
    if (fx.ep->state == SHM_UP) (void)psrti_shm_lane_pending(fx.ep); /* before it would sleep */
}

static void release_one(unsigned i)
{
    if (!fx.nheld) return;
    i %= fx.nheld;
    psrt_msg_t msg = fx.held[i];
    fx.held[i] = fx.held[--fx.nheld];
    if (shm->verify(&iface->super, &msg) == PSRT_OK && fx.ep) read_all(&msg);
    shm->release(&iface->super, &msg);
}

static void event(fuzz_in_t *in)
{
    uint32_t word;
    switch (fuzz_u8(in) % EVENTS) {
    case WRITE: write_bytes(in); break;
    case ENTRY: entry(in); break;
    case RETIRE:
        word = (fx.retired / SHM_SLOTS + 1) << 8 | fuzz_u8(in);
        write_lane((uint32_t)offsetof(shm_lane_t, retired) + fx.retired++ % SHM_SLOTS * 4, &word,
                   4);
        break;
    case CONSUME:
        word = (uint32_t)lane->consumed + fuzz_u16(in);
        write_lane(offsetof(shm_lane_t, consumed), &word, sizeof word);
        break;
    case PACKET: packet_of(in); break;
    case SEGMENT: segment(in); break;
    case CHANGE: add_change(in); break;
    case SEND: send_some(in); break;
    case RELEASE: release_one(fuzz_u8(in)); break;
    case FREED: /* the user's buffer, whatever is in flight */
        if (fx.own && fx.sent == fx.done) shm->mem_free(&iface->super, fx.own), fx.own = NULL;
        break;
    default: turn(poll_lane); break;
    }
}

/* ---- the target -------------------------------------------------------------------------------- */

/* Everything ends: sends are done, copies are given back, nothing is left of the endpoint. */
static void finish(void)
{
    if (fx.ep) shm->ep_close(&fx.ep->super);
    FUZZ_ASSERT(fx.sent == fx.done);
    while (fx.nheld)
        release_one(0);
    close(fx.sock);
    for (uint32_t i = 0; i < iface->ep_count; i++)
        while (iface->eps[i]->state == SHM_LINGER) /* to its end */
            psrti_shm_sock_read(iface->eps[i]);
    psrti_shm_reap(iface);
    if (fx.own) shm->mem_free(&iface->super, fx.own);
    FUZZ_ASSERT(iface->ep_count == 0 && iface->connecting == 0);
    FUZZ_ASSERT(!iface->arena || iface->arena->units.taken == 0);
    /* The arena alone keeps its descriptor from one input to the next. */
    FUZZ_ASSERT(fuzz_open_fds() == fx.fds_before + (iface->arena != NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    if (!iface) open_iface();
    memset(&fx, 0, sizeof fx);
    fx.fds_before = fuzz_open_fds() - (iface->arena != NULL); /* the fuzzer's own come and go */
    unsigned mode = fuzz_u8(&in);
    fx.verdicts = fuzz_u32(&in);
    open_ep(mode);
    while (in.left)
        event(&in);
    turn(poll_lane);
    finish();
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static void begin(fuzz_out_t *out, unsigned mode, uint32_t verdicts)
{
    out->size = 0;
    fuzz_put8(out, mode);
    fuzz_put32(out, verdicts);
}

static void put_entry(fuzz_out_t *out, int kind, unsigned slot, int type, uint64_t len,
                      unsigned seg)
{
    uint8_t header[PSRTI_FRAME_BYTES] = { 0 };
    int values = type == PSRTI_T_PUSH || type == PSRTI_T_VALUE;
    psrt_hdr_t hdr = { .type = (uint8_t)type,
                       .dtype = values ? PSRT_F32 : 0,
                       .length = values ? len / 4 : len };
    if (kind == SHM_FREE)
        psrti_put32(header, seg);
    else
        psrti_frame_encode(&hdr, header);
    fuzz_put8(out, ENTRY);
    fuzz_put8(out, (unsigned)kind);
    fuzz_put8(out, slot);
    fuzz_put16(out, kind == SHM_INLINE ? (unsigned)len : 0);
    fuzz_put(out, header, sizeof header);
    fuzz_put8(out, seg);
    fuzz_put32(out, 64);
    fuzz_put32(out, (uint32_t)len);
}

static void put_segment(fuzz_out_t *out, unsigned which, unsigned id)
{
    fuzz_put8(out, SEGMENT);
    fuzz_put8(out, which);
    fuzz_put8(out, id);
}

static void put_change(fuzz_out_t *out, unsigned loads, unsigned at, uint32_t value)
{
    fuzz_put8(out, CHANGE);
    fuzz_put8(out, loads);
    fuzz_put8(out, at);
    fuzz_put32(out, value);
}

static void put_send(fuzz_out_t *out, unsigned how, unsigned len)
{
    fuzz_put8(out, SEND);
    fuzz_put8(out, how);
    fuzz_put16(out, len);
}

static void seed_messages(void)
{
    fuzz_out_t out;
    begin(&out, 0, 0x55);
    put_entry(&out, SHM_INLINE, 0, PSRTI_T_ACK, 0, 0);
    put_entry(&out, SHM_INLINE, 0, PSRTI_T_CTRL, 100, 0);
    fuzz_put8(&out, POLL);
    put_segment(&out, 1, 1);
    put_entry(&out, SHM_DESC, 7, PSRTI_T_PUSH, 4096, 1);
    put_entry(&out, SHM_DESC, 8, PSRTI_T_CTRL, 4000, 1);
    fuzz_put8(&out, POLL);
    fuzz_put16(&out, RELEASE);
    put_entry(&out, SHM_FREE, 0, 0, 0, 1);
    fuzz_put8(&out, POLL);
    fuzz_put16(&out, RELEASE);
    fuzz_seed("messages", out.data, out.size);

    begin(&out, 0, 0x1);
    put_segment(&out, 1, 1);
    put_entry(&out, SHM_DESC, 7, PSRTI_T_COLL, 4096, 1);
    fuzz_put8(&out, POLL);
    fuzz_seed("collective", out.data, out.size);
}

static void seed_ring(void)
{
    fuzz_out_t out;
    begin(&out, 0, 0);
    for (unsigned i = 0; i < 33;
         i++) { /* 31 entries of 33 units, then a pad to the end of the ring */
        put_entry(&out, i == 31 ? SHM_PAD : SHM_INLINE, 0, PSRTI_T_CTRL, i == 31 ? 0 : 2040, 0);
        if (i % 8 == 0) fuzz_put8(&out, POLL);
    }
    fuzz_seed("ring", out.data, out.size);
}

static void seed_sends(void)
{
    fuzz_out_t out;
    begin(&out, 0, 0);
    put_send(&out, 0, 64);
    put_send(&out, 1, 8192);
    put_send(&out, 3, 8192);
    put_send(&out, 2, 4096);
    fuzz_put8(&out, RETIRE);
    fuzz_put8(&out, 255);
    fuzz_put8(&out, CONSUME);
    fuzz_put16(&out, 4);
    fuzz_put8(&out, POLL);
    put_entry(&out, SHM_INLINE, 0, PSRTI_T_CTRL, 8, 0);
    fuzz_put8(&out, POLL);
    put_change(&out, 0, NEAR + 5, UINT32_MAX); /* reading, while we close */
    fuzz_seed("sends", out.data, out.size);

    begin(&out, 0, 0);
    for (unsigned i = 0; i < 3; i++) {
        put_send(&out, 31 << 3, 2040); /* fills the ring, which is read at once */
        fuzz_put8(&out, CONSUME);
        fuzz_put16(&out, 27 * 33);
        fuzz_put8(&out, POLL);
    }
    put_entry(&out, SHM_INLINE, 0, PSRTI_T_CTRL, 8, 0);
    fuzz_put8(&out, POLL);
    fuzz_seed("full", out.data, out.size);
}

/* What was read is changed at once afterwards, word by word: nobody looks at it again. */
static void seed_changes(void)
{
    fuzz_out_t out;
    begin(&out, 0, 0);
    put_segment(&out, 1, 1);
    put_entry(&out, SHM_INLINE, 0, PSRTI_T_CTRL, 64, 0);
    put_change(&out, 4, 1,
               SHM_INLINE |
                   60000u << 16); /* after the poll's look at closed, retired and both words */
    fuzz_put8(&out, POLL);
    put_entry(&out, SHM_DESC, 7, PSRTI_T_CTRL, 3000, 1);
    put_change(&out, 5, SHM_ENTRY_HEAD / 4 + 4, 0xfffffff0); /* the descriptor's length */
    fuzz_put8(&out, POLL);
    fuzz_seed("changes", out.data, out.size);
}

/* The header announces more than fits in where a message is copied to; the length in the entry says so only
 * after it was found small. The same for a descriptor, whose end moves out of its segment. */
static void attack_lengths(void)
{
    fuzz_out_t out;
    begin(&out, 0, 0);
    put_entry(&out, SHM_INLINE, 0, PSRTI_T_CTRL, 3000, 0);
    put_change(&out, 0, 1, SHM_INLINE | 100u << 16);
    put_change(&out, 3, 1, SHM_INLINE | 3000u << 16);
    fuzz_put8(&out, POLL);
    fuzz_attack("inline-length", out.data, out.size);
    for (unsigned loads = 0; loads < 4; loads++) {
        char name[32];
        begin(&out, 0, 0);
        put_segment(&out, 0, 1);
        put_entry(&out, SHM_DESC, 0, PSRTI_T_CTRL, 32000, 1);
        put_change(&out, 0, SHM_ENTRY_HEAD / 4 + 4, 3000);
        put_change(&out, 3 + loads, SHM_ENTRY_HEAD / 4 + 4, 32000);
        fuzz_put8(&out, POLL);
        snprintf(name, sizeof name, "descriptor-length-%u", loads);
        fuzz_attack(name, out.data, out.size);
    }
}

static void seed_handshake(void)
{
    fuzz_out_t out;
    shm_hello_t hello = { .magic = SHM_MAGIC,
                          .version = SHM_VERSION,
                          .kind = SHM_PK_HELLO,
                          .task = 66,
                          .units = SHM_UNITS,
                          .lane_bytes = sizeof(shm_lane_t) };
    for (unsigned mode = MODE_HANDSHAKE; mode <= MODE_DIALLER; mode++) {
        begin(&out, mode, 0);
        hello.kind = mode == MODE_DIALLER ? SHM_PK_WELCOME : SHM_PK_HELLO;
        fuzz_put8(&out, PACKET);
        fuzz_put8(&out, 1);
        fuzz_put8(&out, sizeof hello);
        fuzz_put(&out, &hello, sizeof hello);
        if (mode == MODE_HANDSHAKE) fuzz_put32(&out, PACKET | 1 << 16 | SHM_PK_READY << 24);
        put_entry(&out, SHM_INLINE, 0, PSRTI_T_CTRL, 100, 0);
        fuzz_put8(&out, POLL);
        fuzz_seed(mode == MODE_DIALLER ? "dialled" : "accepted", out.data, out.size);
    }
}

void fuzz_seeds(void)
{
    seed_messages();
    seed_ring();
    seed_sends();
    seed_changes();
    attack_lengths();
    seed_handshake();
}
