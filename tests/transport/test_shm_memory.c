/* SPDX-License-Identifier: Apache-2.0 */
/* Segments, the arena, and what a closed endpoint leaves alone. */
#include <stdlib.h>
#include <string.h>

#include <psrt/psrt.h>

#include "transport/shm_rig.h"

#define KIB 1024u
#define MIB (1024u * 1024u)

static const psrt_transport_ops_t *const shm = &psrti_transport_shm;

Test(shm_memory, allocations, .timeout = 120)
{
    enum { COUNT = 1000 };
    rig_open();
    static uint8_t *ptr[COUNT];
    static size_t size[COUNT];
    unsigned fds = open_fds();
    for (size_t i = 0; i < COUNT; i++) {
        size[i] = psrti_mix64(i) % 20000 + 1;
        void *memory;
        cr_assert_eq(shm->mem_alloc(rig.a.iface, size[i], &memory), PSRT_OK);
        ptr[i] = memory;
        cr_assert_eq((uintptr_t)ptr[i] % 4096, 0);
        for (size_t k = 0; k < size[i]; k++)
            cr_assert_eq(ptr[i][k], 0);
        pattern(ptr[i], size[i], i);
    }
    cr_assert(open_fds() - fds < 20, "small allocations share segments: %u descriptors",
              open_fds() - fds);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert(has_pattern(ptr[i], size[i], i), "allocation %zu was overwritten", i);
    for (size_t i = 0; i < COUNT; i += 2)
        shm->mem_free(rig.a.iface, ptr[i]);
    for (size_t i = 0; i < COUNT; i += 2) { /* reused memory is zeroed again */
        void *memory;
        cr_assert_eq(shm->mem_alloc(rig.a.iface, size[i], &memory), PSRT_OK);
        ptr[i] = memory;
        for (size_t k = 0; k < size[i]; k++)
            cr_assert_eq(ptr[i][k], 0);
    }
    for (size_t i = 1; i < COUNT; i += 2)
        cr_assert(has_pattern(ptr[i], size[i], i));
    for (size_t i = 0; i < COUNT; i++)
        shm->mem_free(rig.a.iface, ptr[i]);
    cr_assert_eq(open_fds(), fds);
    cr_assert_eq(mapped_segments(), 0);
    rig_close();
}

Test(shm_memory, limits, .timeout = 120)
{
    static const uint64_t sizes[] = { 1ull << 45, 1ull << 62, INT64_MAX, UINT64_MAX };
    rig_open();
    unsigned fds = open_fds();
    for (size_t i = 0; i < PSRTI_COUNT(sizes); i++) {
        char bytes[32];
        void *memory = &memory;
        snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)sizes[i]);
        cr_assert_eq(shm->mem_alloc(rig.a.iface, sizes[i], &memory), PSRT_ERR_NO_MEMORY);
        cr_assert(memory == &memory, "the output of a failed call");
        cr_assert(strstr(psrt_last_error(), bytes), "%s", psrt_last_error());
    }
    void *memory = NULL;
    cr_assert_eq(shm->mem_alloc(rig.a.iface, 0, &memory), PSRT_ERR_INVALID);
    shm->mem_free(rig.a.iface, NULL);
    shm->mem_free(rig.a.iface, &memory); /* not ours */
    cr_assert_eq(open_fds(), fds);
    rig_close();
}

/* The receiver reads the sender's pages; after the free it lets them go, but not while it holds. */
Test(shm_memory, free_reaches_the_peer, .timeout = 120)
{
    enum { LEN = 3 * MIB };
    rig_open();
    rig_connect();
    unsigned maps = mapped_segments();
    for (uint64_t round = 0; round < 5; round++) {
        void *memory;
        cr_assert_eq(shm->mem_alloc(rig.a.iface, LEN, &memory), PSRT_OK);
        pattern(memory, LEN, round);
        rig.b.verdict = round % 2 ? PSRT_RX_HOLD : PSRT_RX_DONE;
        rig.a.done = 0;
        cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory, LEN), PSRT_IN_PROGRESS);
        RIG_UNTIL(rig.b.messages == round + 1);
        cr_assert(has_pattern(rig.b.last, LEN, round));
        if (round % 2) {
            shm->mem_free(rig.a.iface, memory); /* against the rules, and harmless */
            for (int i = 0; i < 10; i++)
                rig_pump();
            cr_assert_eq(rig.a.done, 0, "done while the receiver holds");
            cr_assert(has_pattern(rig.b.held[0].data, LEN, round), "held pages went away");
            cr_assert_eq(shm->verify(rig.b.iface, &rig.b.held[0]), PSRT_OK);
            shm->release(rig.b.iface, &rig.b.held[0]);
            shm->release(rig.b.iface, &rig.b.held[0]); /* twice is once */
            rig.b.held_count = 0;
            RIG_UNTIL(rig.a.done == 1);
        } else {
            RIG_UNTIL(rig.a.done == 1);
            shm->mem_free(rig.a.iface, memory);
        }
        cr_assert_eq(rig.a.done_status, PSRT_OK);
        RIG_UNTIL(mapped_segments() == maps);
    }
    rig_check_traffic();
    rig_close();
}

/* Many segments at once, each with messages in flight, released in another order. */
Test(shm_memory, many_segments, .timeout = 120)
{
    enum { COUNT = 40, LEN = 300 * KIB };
    rig.window = 64 * MIB;
    rig_open();
    rig_connect();
    void *memory[COUNT];
    rig.b.verdict = PSRT_RX_HOLD;
    for (uint64_t i = 0; i < COUNT; i++) {
        cr_assert_eq(shm->mem_alloc(rig.a.iface, LEN, &memory[i]), PSRT_OK);
        pattern(memory[i], LEN, i);
        cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory[i], LEN), PSRT_IN_PROGRESS);
    }
    RIG_UNTIL(rig.b.held_count == COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned at = i * 17 % COUNT;
        cr_assert(has_pattern(rig.b.held[at].data, LEN, at));
        shm->release(rig.b.iface, &rig.b.held[at]);
        RIG_UNTIL(rig.a.done == i + 1);
        shm->mem_free(rig.a.iface, memory[at]);
    }
    rig_check_traffic();
    rig_close();
}

/* Larger than the arena: a segment of its own for each message, gone after it. */
Test(shm_memory, larger_than_the_arena, .timeout = 120)
{
    enum { LARGEST = 5 * MIB };
    rig.arena = 64 * KIB;
    rig_open();
    rig_connect();
    uint8_t *data = malloc(LARGEST);
    for (uint64_t len = 3000; len <= LARGEST; len += len / 2) {
        unsigned before = rig.b.messages;
        pattern(data, len, len);
        cr_assert_eq(side_send(&rig.a, PSRTI_T_CTRL, data, len), PSRT_OK, "captured at once");
        memset(data, 0, len);
        RIG_UNTIL(rig.b.messages == before + 1);
        cr_assert(rig.b.last_len == len && has_pattern(rig.b.last, len, len));
    }
    RIG_UNTIL(mapped_segments() == 4 + 2); /* two lanes mapped at both sides, and the arena */
    free(data);
    rig_close();
}

/* The example of docs/shm-format.md: an ACK, a CTRL of 3 bytes, a PUSH of 4096 bytes in place. */
Test(shm_memory, bytes_of_a_lane, .timeout = 120)
{
    static const uint8_t ack[8] = { 0x00, 0x00, 0x00, 0x80, 0x02, 0x00, 0x00, 0x00 };
    static const uint8_t ctrl[8] = { 0x01, 0x00, 0x00, 0x80, 0x02, 0x00, 0x03, 0x00 };
    static const uint8_t push[8] = { 0x03, 0x00, 0x00, 0x80, 0x03, 0xff, 0x00, 0x00 };
    static const uint8_t desc[24] = { 0x01, 0, 0, 0, 0, 0, 0, 0, 0x00,
                                      0x00, 0, 0, 0, 0, 0, 0, 0, 0x10 };
    static const uint8_t zero[4] = { 0 };
    psrt_hdr_t ack_hdr = { .type = PSRTI_T_ACK }, ctrl_hdr = { .type = PSRTI_T_CTRL, .length = 3 };
    void *memory;
    uint8_t body[PSRTI_FRAME_BODY_BYTES];
    rig_open();
    rig_connect();
    cr_assert_eq(shm->mem_alloc(rig.a.iface, 4096, &memory), PSRT_OK);
    cr_assert_eq(shm->send(rig.a.ep, &ack_hdr, NULL, 0, 0, NULL), PSRT_OK);
    cr_assert_eq(shm->send(rig.a.ep, &ctrl_hdr, "abc", 3, 0, NULL), PSRT_OK);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory, 4096), PSRT_IN_PROGRESS);
    const uint8_t *ring = ((shm_ep_t *)rig.a.ep)->own->ring;
    psrti_frame_body_encode(&ctrl_hdr, body);
    cr_assert_eq(memcmp(ring, ack, sizeof ack), 0);
    cr_assert_eq(memcmp(ring + 64, ctrl, sizeof ctrl), 0);
    cr_assert_eq(memcmp(ring + 64 + 8, body, sizeof body), 0);
    cr_assert_eq(memcmp(ring + 64 + 64, "abc", 3), 0);
    cr_assert_eq(memcmp(ring + 192, push, sizeof push), 0);
    cr_assert_eq(memcmp(ring + 192 + 64, desc, sizeof desc), 0);
    cr_assert_eq(memcmp(ring + 320, zero, sizeof zero), 0);
    RIG_UNTIL(rig.a.done == 1);
    static const uint8_t retired[4] = { 0xff, 0x01, 0x00, 0x00 };
    const shm_lane_t *peer = ((shm_ep_t *)rig.a.ep)->peer;
    cr_assert_eq(memcmp((const uint8_t *)peer + 1024, retired, sizeof retired), 0);
    rig_close();
}

/* ---- closing ---------------------------------------------------------------------------------- */

/* The receiver learns from verify that the memory it read may have been written meanwhile. */
Test(shm_memory, verify_after_close, .timeout = 120)
{
    enum { LEN = 100 * KIB };
    rig_open();
    rig_connect();
    rig.b.keep_lost = 1;
    rig.b.verdict = PSRT_RX_HOLD;
    void *memory;
    cr_assert_eq(shm->mem_alloc(rig.a.iface, LEN, &memory), PSRT_OK);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory, LEN), PSRT_IN_PROGRESS);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_CTRL, memory, LEN), PSRT_IN_PROGRESS);
    RIG_UNTIL(rig.b.held_count == 2 && rig.a.done == 1);
    cr_assert_eq(shm->verify(rig.b.iface, &rig.b.held[0]), PSRT_OK);
    shm->ep_close(rig.a.ep);
    cr_assert_eq(rig.a.done, 2);
    cr_assert_eq(rig.a.done_status, PSRT_ERR_CANCELED);
    cr_assert_eq(shm->verify(rig.b.iface, &rig.b.held[0]), PSRT_ERR_STALE);
    cr_assert_eq(shm->verify(rig.b.iface, &rig.b.held[1]), PSRT_OK, "a private copy");
    RIG_UNTIL(rig.b.lost == 1);
    cr_assert_eq(shm->verify(rig.b.iface, &rig.b.held[0]), PSRT_ERR_STALE);
    shm->ep_close(rig.b.ep);
    cr_assert_eq(shm->verify(rig.b.iface, &rig.b.held[1]), PSRT_ERR_STALE);
    shm->release(rig.b.iface, &rig.b.held[0]); /* allowed, and nothing */
    shm->release(rig.b.iface, &rig.b.held[1]);
    rig_close();
}

/* Memory that a receiver holds is taken away from it on closing; what is in it stays, for both. Payloads
 * may share a page. The memory can be sent again, by copy, and freed. */
Test(shm_memory, taken_away, .timeout = 120)
{
    enum { LEN = 100 * KIB - 100 };
    rig_open();
    rig_connect();
    rig.b.keep_lost = 1;
    rig.b.verdict = PSRT_RX_HOLD;
    void *got;
    cr_assert_eq(shm->mem_alloc(rig.a.iface, 2 * LEN, &got), PSRT_OK);
    uint8_t *memory = got;
    pattern(memory, 2 * LEN, 1);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory + LEN, LEN), PSRT_IN_PROGRESS);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory, LEN), PSRT_IN_PROGRESS);
    RIG_UNTIL(rig.b.held_count == 2);
    const shm_lane_t *lane = ((shm_ep_t *)rig.b.ep)->own;
    cr_assert_eq(atomic_load(&lane->reading[3]), 3ull << 62, "slots 254 and 255 are read");
    uint8_t *sent = malloc(2 * LEN);
    memcpy(sent, memory, 2 * LEN);
    shm->ep_close(rig.a.ep);
    cr_assert_eq(memcmp(memory, sent, 2 * LEN), 0);
    memset(memory, 0x33, 2 * LEN);
    cr_assert_eq(memcmp(rig.b.held[0].data, sent + LEN, LEN), 0);
    cr_assert_eq(memcmp(rig.b.held[1].data, sent, LEN), 0);
    RIG_UNTIL(rig.b.lost == 1);
    shm->ep_close(rig.b.ep);
    rig_connect();
    cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory + LEN / 2, LEN), PSRT_OK, "a copy");
    RIG_UNTIL(rig.b.held_count == 3);
    cr_assert_eq(memcmp(rig.b.held[2].data, memory + LEN / 2, LEN), 0);
    shm->mem_free(rig.a.iface, memory);
    cr_assert_eq(shm->mem_alloc(rig.a.iface, 2 * LEN, &got), PSRT_OK);
    for (unsigned i = 0; i < 2 * LEN; i++)
        cr_assert_eq(((uint8_t *)got)[i], 0, "memory is zeroed, also where it was taken away");
    cr_assert_eq(rig.warnings, 0);
    free(sent);
    rig_close();
}

/* What the sender withdrew before the receiver looked is not delivered, nor what came after it. */
Test(shm_memory, withdrawn, .timeout = 120)
{
    enum { LEN = 100 * KIB };
    rig_open();
    rig_connect();
    void *memory;
    cr_assert_eq(shm->mem_alloc(rig.a.iface, LEN, &memory), PSRT_OK);
    psrt_hdr_t ack = { .type = PSRTI_T_ACK }, bye = { .type = PSRTI_T_BYE };
    cr_assert_eq(shm->send(rig.a.ep, &ack, NULL, 0, 0, NULL), PSRT_OK);
    cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, memory, LEN), PSRT_IN_PROGRESS);
    cr_assert_eq(shm->send(rig.a.ep, &bye, NULL, 0, 0, NULL), PSRT_OK);
    shm->ep_close(rig.a.ep);
    RIG_UNTIL(rig.b.lost == 1);
    cr_assert_eq(rig.b.messages, 1);
    cr_assert_eq(rig.b.last_type, PSRTI_T_ACK);
    cr_assert_eq(rig.b.why, PSRT_ERR_PEER_LOST);
    cr_assert_eq(rig.warnings, 0);
    rig_close();
}

/* Copies that a stopped receiver still reads are not overwritten by messages to others, and come
 * back to the arena when it has closed. */
Test(shm_memory, arena_after_close, .timeout = 120)
{
    enum { LEN = 200 * KIB, COUNT = 4 };
    rig.arena = 2 * MIB;
    rig_open();
    rig_connect();
    rig.b.keep_lost = 1;
    rig.b.verdict = PSRT_RX_HOLD;
    uint8_t *data = malloc(LEN);
    for (uint64_t i = 0; i < COUNT; i++) {
        pattern(data, LEN, i);
        cr_assert_eq(side_send(&rig.a, PSRTI_T_PUSH, data, LEN), PSRT_OK);
    }
    RIG_UNTIL(rig.b.held_count == COUNT);
    shm->ep_close(rig.a.ep);

    psrt_iface_t *stopped = rig.b.iface;
    rig.b.iface = NULL;
    side_t other;
    psrt_ep_t *ep;
    cr_assert_eq(side_open(&other, rig.dir, rig.nonce, 1), PSRT_OK);
    cr_assert_eq(shm->ep_open(rig.a.iface, other.addr, &ep), PSRT_OK);
    while (rig.a.up < 2 || other.up < 1)
        rig_pump(), shm->progress(other.iface);
    for (uint64_t i = 0; i < 40; i++) {
        psrt_hdr_t hdr = { .type = PSRTI_T_PUSH, .dtype = PSRT_F32, .length = LEN / 4 };
        psrt_tx_t tx = { 0 };
        psrt_status_t status;
        pattern(data, LEN, 100 + i);
        while ((status = shm->send(ep, &hdr, data, LEN, 0, &tx)) == PSRT_ERR_AGAIN)
            rig_pump(), shm->progress(other.iface);
        cr_assert_eq(status, PSRT_OK);
    }
    while (other.messages < 40)
        rig_pump(), shm->progress(other.iface);
    for (uint64_t i = 0; i < COUNT; i++)
        cr_assert(has_pattern(rig.b.held[i].data, LEN, i), "copy %u was overwritten", (unsigned)i);
    shm_iface_t *a = (shm_iface_t *)rig.a.iface;
    RIG_UNTIL(a->arena->units.taken == COUNT * ((LEN + 16383) / 16384));
    rig.b.iface = stopped;
    RIG_UNTIL(rig.b.lost == 1);
    cr_assert(a->arena->units.taken > 0, "given back before the receiver closed");
    shm->ep_close(rig.b.ep);
    RIG_UNTIL(a->arena->units.taken == 0);
    side_close(&other);
    free(data);
    rig_close();
}

/* The memory of a peer, which jobs with many tasks have many of. */
Test(shm_memory, size_of_a_peer)
{
    cr_assert(sizeof(shm_ep_t) <= 14 * KIB, "%zu bytes an endpoint", sizeof(shm_ep_t));
    cr_assert(sizeof(shm_lane_t) <= 68 * KIB, "%zu bytes a lane", sizeof(shm_lane_t));
}
