/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages: packing, and what happens to hostile ones. */
#include "runtime/wire/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "runtime/cluster/convert.h"
#include "support/page.h"
#include "support/test.h"

/* The example of docs/wire-format.md: Barrier { name "epoch", count 3, request 5 }. */
#define BARRIER_BYTES 13

static void read_barrier(uint8_t bytes[BARRIER_BYTES + 1])
{
    cr_assert_eq(page_block("control-barrier", bytes, BARRIER_BYTES + 1), BARRIER_BYTES);
}

Test(wire, barrier_is_as_documented)
{
    Psrt__Barrier body = PSRT__BARRIER__INIT;
    uint8_t out[64], barrier_bytes[BARRIER_BYTES + 1];
    Psrt__Control *back;

    read_barrier(barrier_bytes);
    body.name = "epoch";
    body.count = 3;
    body.request = 5;
    PSRTI_CONTROL(msg, BARRIER, barrier, &body);
    cr_assert_eq(psrti_wire_size(&msg), BARRIER_BYTES);
    psrti_wire_pack(&msg, out);
    cr_assert_eq(memcmp(out, barrier_bytes, BARRIER_BYTES), 0);
    cr_assert_eq(psrti_wire_unpack(barrier_bytes, BARRIER_BYTES, 64, &back), PSRT_OK);
    cr_assert_str_eq(psrti_wire_name(back), "barrier");
    cr_assert_str_eq(back->barrier->name, "epoch");
    cr_assert_eq(back->barrier->count, 3);
    cr_assert_eq(back->barrier->request, 5);
    psrti_wire_free(back);
}

Test(wire, limits)
{
    uint8_t barrier_bytes[BARRIER_BYTES + 1];
    Psrt__Control *back;

    read_barrier(barrier_bytes);
    cr_assert_eq(psrti_wire_unpack(barrier_bytes, BARRIER_BYTES, 12, &back), PSRT_ERR_LIMIT);
    cr_assert_eq(psrti_wire_unpack(barrier_bytes, 0, 64, &back), PSRT_ERR_PROTOCOL);
    cr_assert_eq(psrti_wire_unpack(NULL, 5, 64, &back), PSRT_ERR_PROTOCOL);
    for (uint64_t len = 1; len < BARRIER_BYTES; len++)
        cr_assert_eq(psrti_wire_unpack(barrier_bytes, len, 64, &back), PSRT_ERR_PROTOCOL);
    psrti_wire_free(NULL);
}

static psrti_view_t *example_view(void)
{
    psrti_view_t *v = psrti_view_new(2, 3, 8);
    v->number = 11;
    v->generation = 2;
    for (uint32_t i = 0; i < 2; i++) {
        v->workers[i].incarnation = 100 + i;
        v->workers[i].alive = i == 0;
        v->workers[i].finished = i == 1;
    }
    for (uint32_t i = 0; i < 3; i++) {
        v->owners[i].server = i / 2;
        v->owners[i].thread = i % 2;
        v->owners[i].incarnation = 200 + i / 2;
        v->owners[i].alive = i != 2;
        v->owners[i].naddrs = i + 1;
        for (uint32_t a = 0; a <= i; a++)
            snprintf(v->owners[i].addr[a], PSRT_ADDR_MAX, "addr %u/%u", i, a);
    }
    for (uint32_t s = 0; s < 8; s++) {
        v->vshards[s].owner = (uint16_t)(s % 3);
        v->vshards[s].term = 1000 + s;
    }
    return v;
}

static uint8_t *pack_view(const psrti_view_t *v, size_t *len)
{
    Psrt__View *body = psrti_view_to_wire(v);
    PSRTI_CONTROL(msg, VIEW, view, body);
    uint8_t *bytes = malloc(*len = psrti_wire_size(&msg));
    psrti_wire_pack(&msg, bytes);
    free(body);
    return bytes;
}

Test(convert, view_survives_the_wire)
{
    psrti_view_t *v = example_view(), *w;
    size_t len;
    uint8_t *bytes = pack_view(v, &len);
    Psrt__Control *msg;

    cr_assert_eq(psrti_wire_unpack(bytes, len, 4096, &msg), PSRT_OK);
    cr_assert_eq(psrti_view_from_wire(msg->view, &w), PSRT_OK);
    cr_assert_eq(w->number, 11);
    cr_assert_eq(w->generation, 2);
    cr_assert_eq(w->nworkers, 2);
    cr_assert_eq(memcmp(w->workers, v->workers, 2 * sizeof *v->workers), 0);
    cr_assert_eq(memcmp(w->owners, v->owners, 3 * sizeof *v->owners), 0);
    for (uint32_t s = 0; s < 8; s++) {
        cr_assert_eq(w->vshards[s].owner, s % 3);
        cr_assert_eq(w->vshards[s].term, 1000 + s);
    }
    psrti_view_unref(w);
    psrti_view_unref(v);
    psrti_wire_free(msg);
    free(bytes);
}

static void expect_bad_view(Psrt__View *body)
{
    psrti_view_t *out = NULL;
    cr_assert_eq(psrti_view_from_wire(body, &out), PSRT_ERR_PROTOCOL);
    cr_assert(out == NULL);
    free(body);
}

Test(convert, views_are_checked)
{
    psrti_view_t *v = example_view();
    char long_addr[PSRT_ADDR_MAX + 1];
    Psrt__View *body = psrti_view_to_wire(v);

    body->vshard_owner[3] = 3; /* owners are 0..2 */
    expect_bad_view(body);
    body = psrti_view_to_wire(v);
    body->n_vshard_term--;
    expect_bad_view(body);
    body = psrti_view_to_wire(v);
    body->owners[1]->n_addr = PSRTI_ADDRS_PER_OWNER + 1;
    expect_bad_view(body);
    body = psrti_view_to_wire(v);
    memset(long_addr, 'x', PSRT_ADDR_MAX);
    long_addr[PSRT_ADDR_MAX] = '\0';
    body->owners[0]->addr[0] = long_addr;
    expect_bad_view(body);
    body = psrti_view_to_wire(v);
    body->owners[0]->server = 65536;
    expect_bad_view(body);
    psrti_view_unref(v);
}

static psrti_table_spec_t example_spec(void)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrti_table_spec_t spec;
    p.ndim = 3;
    p.shape[0] = 5;
    p.shape[1] = 6;
    p.shape[2] = 7;
    p.optimizer = "adam:lr=0.01";
    p.consistency = "ssp:3";
    cr_assert_eq(psrti_table_spec_make("t", &p, &spec), PSRT_OK);
    return spec;
}

Test(convert, spec_survives_the_wire)
{
    psrti_table_spec_t spec = example_spec(), back;
    Psrt__TableSpec body;
    char why[256];

    psrti_spec_to_wire(&spec, &body);
    cr_assert_eq(psrti_spec_from_wire(&body, &back), PSRT_OK);
    cr_assert_eq(psrti_table_spec_compare(&spec, "a", &back, "b", why, sizeof why), PSRT_OK);
    cr_assert_eq(back.elements, 210);
    cr_assert_eq(back.staleness, 3);
}

Test(convert, specs_are_checked)
{
    psrti_table_spec_t spec = example_spec(), back;
    uint64_t huge[2] = { 1ull << 40, 1ull << 40 }, nine[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    char name[PSRTI_NAME_MAX + 2];
    Psrt__TableSpec good, bad;

    psrti_spec_to_wire(&spec, &good);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 8; i++) {
        bad = good;
        if (i == 0) bad.name = name;
        if (i == 1) bad.name = "";
        if (i == 2) bad.n_shape = 2, bad.shape = huge;
        if (i == 3) bad.n_shape = 9, bad.shape = nine;
        if (i == 4) bad.value_dtype = 77;
        if (i == 5) bad.consistency = 9;
        if (i == 6) bad.optimizer = "no such optimizer";
        if (i == 7) bad.acc_dtype = 1u << 31;
        cr_assert_neq(psrti_spec_from_wire(&bad, &back), PSRT_OK, "case %d", i);
    }
    cr_assert_eq(psrti_spec_from_wire(NULL, &back), PSRT_ERR_PROTOCOL);
    bad = good;
    bad.optimizer = "adam:no_such_key=1";
    cr_assert_neq(psrti_spec_from_wire(&bad, &back), PSRT_OK);
    bad.optimizer = "of_a_plugin:lr=1,ema=2";
    cr_assert_neq(psrti_spec_from_wire(&bad, &back), PSRT_OK);
    bad.optimizer = "of_a_plugin:lr=1,warmup=3,ema=0.5"; /* the coordinator has none */
    cr_assert_eq(psrti_spec_from_wire(&bad, &back), PSRT_OK, "%s", psrt_last_error());
    cr_assert_str_eq(back.optimizer, bad.optimizer);
}

/* Mutated bytes never crash; what still unpacks goes through the conversions. */
Test(wire, hostile_bytes, .timeout = 120)
{
    psrti_view_t *v = example_view(), *out;
    size_t len;
    uint8_t *bytes = pack_view(v, &len), *copy = malloc(len);
    unsigned refused = 0, bad_views = 0;
    Psrt__Control *msg;

    for (uint64_t round = 0; round < 200000; round++) {
        uint64_t r = psrti_mix64(round);
        memcpy(copy, bytes, len);
        for (unsigned i = 0; i <= r % 3; i++)
            copy[psrti_mix64(r + i) % len] = (uint8_t)psrti_mix64(r + 77 + i);
        size_t cut = round % 5 ? len : (size_t)(psrti_mix64(r + 5) % len);
        if (psrti_wire_unpack(copy, cut, 4096, &msg) != PSRT_OK) {
            refused++;
            continue;
        }
        if (msg->body_case == PSRT__CONTROL__BODY_VIEW) {
            if (psrti_view_from_wire(msg->view, &out) == PSRT_OK)
                psrti_view_unref(out);
            else
                bad_views++;
        }
        psrti_wire_free(msg);
    }
    cr_assert(refused > 1000 && bad_views > 10, "%u refused, %u bad views", refused, bad_views);
    free(copy);
    free(bytes);
    psrti_view_unref(v);
}
