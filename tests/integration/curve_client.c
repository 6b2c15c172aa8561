/* SPDX-License-Identifier: Apache-2.0 */
/* A client of plain libzmq that knows what a job's key file holds, or only its public key.
 *
 *   curve_client ADDRESS KEY_FILE secret|public
 *
 * Prints what became of the CURVE handshake: "admitted", "refused", "closed" or "nothing". */
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#define PATIENCE_MS 20000

/* Own pair and the job's public key. With only_public the pair is a new one. */
static int read_keys(const char *path, int only_public, uint8_t secret[32], uint8_t own[32],
                     uint8_t job[32])
{
    char hex[65] = "";
    FILE *file = fopen(path, "r");
    int ok = file && fscanf(file, "psrt-job-key 1 nonce=%*32[0-9a-f] secret=%64[0-9a-f]", hex) == 1;
    if (file) fclose(file);
    if (!ok || sodium_hex2bin(secret, 32, hex, 64, NULL, NULL, NULL) != 0) return 0;
    if (crypto_scalarmult_base(job, secret) != 0) return 0;
    memcpy(own, job, 32);
    if (only_public) crypto_box_keypair(own, secret);
    return 1;
}

static const char *next_event(void *monitor)
{
    uint8_t event[6];
    char address[256];
    uint16_t number;
    if (zmq_recv(monitor, event, sizeof event, 0) != sizeof event) return "nothing";
    zmq_recv(monitor, address, sizeof address, 0);
    memcpy(&number, event, sizeof number);
    if (number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return "admitted";
    return number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH ? "refused" : "closed";
}

int main(int argc, char **argv)
{
    uint8_t secret[32], own[32], job[32];
    const int zero = 0, never = -1, patience = PATIENCE_MS;
    if (argc != 4 || sodium_init() < 0) return 2;
    if (!read_keys(argv[2], strcmp(argv[3], "public") == 0, secret, own, job)) return 1;
    void *context = zmq_ctx_new(), *client = zmq_socket(context, ZMQ_DEALER);
    void *monitor = zmq_socket(context, ZMQ_PAIR);
    zmq_setsockopt(client, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(client, ZMQ_RECONNECT_IVL, &never, sizeof never);
    zmq_setsockopt(client, ZMQ_CURVE_SERVERKEY, job, sizeof job);
    zmq_setsockopt(client, ZMQ_CURVE_PUBLICKEY, own, sizeof own);
    zmq_setsockopt(client, ZMQ_CURVE_SECRETKEY, secret, sizeof secret);
    zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &patience, sizeof patience);
    zmq_socket_monitor(client, "inproc://monitor",
                       ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                           ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
    zmq_connect(monitor, "inproc://monitor");
    if (zmq_connect(client, argv[1]) != 0) return 1;
    puts(next_event(monitor));
    zmq_socket_monitor(client, NULL, 0);
    zmq_close(monitor);
    zmq_close(client);
    zmq_ctx_term(context);
    return 0;
}
