/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets in, and what is on the wire. */
#include "zmq_node.h"

#include <sodium.h>
#include <string.h>
#include <zmq.h>

#include "support/tap.h"

static const uint8_t other_secret[32] = { 9, 8, 7, 6, 5, 4, 3, 2, 1, 77, 66, 55, 44, 33, 22, 11 };
static const uint8_t other_nonce[16] = { 16, 15, 14, 13 };

/* The stranger is refused, and the pair that runs meanwhile notices nothing. */
static void expect_refused(int pair_security, const psrt_iface_params_t *stranger_params,
                           psrt_status_t why)
{
    node_t a = { 0 }, b = { 0 };
    node_t *stranger = stranger_params->arg;
    log_capture();
    node_open_pair(&a, &b, pair_security);
    node_open(stranger, stranger_params);
    node_dial(stranger, a.addr);
    node_exchange(&a, &b);
    PUMP(stranger->lost, stranger, &a, &b);
    cr_assert_eq(stranger->why, why, "%s", psrt_status_name(stranger->why));
    cr_assert_eq(stranger->up, 0);
    node_exchange(&a, &b);
    cr_assert(a.up == 1 && !a.lost && !b.lost);
    node_close(stranger);
    node_close(&b);
    node_close(&a);
}

Test(zmq_security, wrong_key)
{
    node_t c = { 0 };
    psrt_iface_params_t params = node_params(&c, 3);
    params.secret = other_secret;
    expect_refused(PSRT_SECURITY_ENCRYPTED, &params, PSRT_ERR_REFUSED);
}

Test(zmq_security, plain_client)
{
    node_t c = { 0 };
    psrt_iface_params_t params = node_params(&c, 3);
    params.security = PSRT_SECURITY_OFF;
    params.secret = NULL;
    expect_refused(PSRT_SECURITY_ENCRYPTED, &params, PSRT_ERR_REFUSED);
}

Test(zmq_security, encrypted_client_of_plain_server)
{
    node_t c = { 0 };
    psrt_iface_params_t params = node_params(&c, 3);
    expect_refused(PSRT_SECURITY_OFF, &params, PSRT_ERR_REFUSED);
}

Test(zmq_security, other_job_without_encryption)
{
    node_t c = { 0 };
    psrt_iface_params_t params = node_params(&c, 3);
    params.security = PSRT_SECURITY_OFF;
    params.job_nonce = other_nonce;
    expect_refused(PSRT_SECURITY_OFF, &params, PSRT_ERR_REFUSED);
    cr_assert_eq(log_count("refused task 3: it belongs to another job"), 1);
}

static unsigned monitor_event(void *monitor)
{
    zmq_msg_t msg;
    uint16_t event = 0;
    zmq_msg_init(&msg);
    if (zmq_msg_recv(&msg, monitor, ZMQ_DONTWAIT) == 6) {
        memcpy(&event, zmq_msg_data(&msg), sizeof(event));
        zmq_msg_recv(&msg, monitor, 0); /* the address */
    }
    zmq_msg_close(&msg);
    return event;
}

/* CURVE proves the server to this client, and the handler must refuse it: it has a valid key pair
 * of its own, and the job's public key only. */
Test(zmq_security, public_key_is_not_enough)
{
    node_t a = { 0 }, b = { 0 };
    uint8_t job_public[32], own_public[32], own_secret[32];
    int zero = 0, never = -1, one = 1;
    unsigned event;
    log_capture();
    node_open_pair(&a, &b, PSRT_SECURITY_ENCRYPTED);
    crypto_scalarmult_base(job_public, node_secret);
    crypto_box_keypair(own_public, own_secret);

    void *context = zmq_ctx_new(), *client = zmq_socket(context, ZMQ_DEALER);
    zmq_setsockopt(client, ZMQ_LINGER, &zero, sizeof(zero));
    zmq_setsockopt(client, ZMQ_RECONNECT_IVL, &never, sizeof(never));
    zmq_setsockopt(client, ZMQ_IMMEDIATE, &one, sizeof(one));
    zmq_setsockopt(client, ZMQ_CURVE_SERVERKEY, job_public, 32);
    zmq_setsockopt(client, ZMQ_CURVE_PUBLICKEY, own_public, 32);
    zmq_setsockopt(client, ZMQ_CURVE_SECRETKEY, own_secret, 32);
    zmq_socket_monitor(client, "inproc://monitor",
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
    void *monitor = zmq_socket(context, ZMQ_PAIR);
    zmq_connect(monitor, "inproc://monitor");
    cr_assert_eq(zmq_connect(client, a.addr), 0);
    PUMP((event = monitor_event(monitor)), &a, &b);
    cr_assert_eq(event, ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
    cr_assert_eq(log_count("it does not hold the job's key"), 1);

    node_exchange(&a, &b);
    cr_assert(a.up == 1 && !a.lost && !b.lost);
    zmq_socket_monitor(client, NULL, 0);
    zmq_close(monitor);
    zmq_close(client);
    zmq_ctx_term(context);
    node_close(&b);
    node_close(&a);
}

Test(zmq_security, encryption_needs_a_key)
{
    node_t a = { 0 };
    psrt_iface_params_t params = node_params(&a, 1);
    params.secret = NULL;
    cr_assert_eq(ZMQ_OPS->iface_open(&params, &a.iface), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "job key"));
}

/* A second task with the same number and incarnation is another connection: neither mutes the other.
 * Which of them is the task is decided above. */
Test(zmq_security, same_identity_twice)
{
    node_t a = { 0 }, b = { 0 }, c = { 0 };
    node_open_pair(&a, &b, PSRT_SECURITY_ENCRYPTED);
    psrt_ep_t *to_b = a.ep;
    psrt_iface_params_t params = node_params(&c, 2); /* as b */
    node_open(&c, &params);
    node_dial(&c, a.addr);
    PUMP(a.up == 2 && c.up == 1, &a, &b, &c);
    node_exchange(&a, &c);
    a.ep = to_b;
    node_exchange(&a, &b);
    cr_assert(!a.lost && !b.lost && !c.lost);
    node_close(&c);
    node_close(&b);
    node_close(&a);
}

/* True if a payload of the exchange through the tap is readable in what the tap saw. */
static int payload_visible(int security)
{
    node_t a = { 0 }, b = { 0 };
    psrt_iface_params_t pa = node_params(&a, 1), pb = node_params(&b, 2);
    pa.listen = 1;
    pa.security = pb.security = security;
    node_open(&a, &pa);
    node_open(&b, &pb);

    tap_t tap;
    char addr[PSRT_ADDR_MAX];
    tap_open(&tap, a.addr);
    snprintf(addr, sizeof(addr), "tcp://127.0.0.1:%u", tap.port);
    node_dial(&b, addr);
    PUMP(a.up && b.up, &a, &b);

    static const char text[] = "the quick gradient jumps over the lazy server";
    psrt_hdr_t hdr = node_hdr(sizeof(text), 1);
    cr_assert_eq(ZMQ_OPS->send(b.ep, &hdr, text, sizeof(text), 0, NULL), PSRT_OK);
    PUMP(a.received == 1, &a, &b);
    node_close(&b);
    node_close(&a);
    cr_assert_gt(tap.said[TAP_TO_SERVER].count, sizeof(text));
    int visible = tap_shows(&tap, text, sizeof(text));
    tap_close(&tap);
    return visible;
}

Test(zmq_security, nothing_readable_on_the_wire)
{
    cr_assert_eq(payload_visible(PSRT_SECURITY_OFF), 1, "the tap does not work");
    cr_assert_eq(payload_visible(PSRT_SECURITY_ENCRYPTED), 0);
}
