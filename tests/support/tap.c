/* SPDX-License-Identifier: Apache-2.0 */
#include "support/tap.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/test.h"

#define CAPACITY ((size_t)8 << 20) /* of one direction; more is relayed, but not kept */

static int tcp_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    return fd;
}

static int dial(uint16_t port)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = tcp_socket();
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

int tap_say(int fd, const uint8_t *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = send(fd, bytes + done, size - done, MSG_NOSIGNAL);
        if (n <= 0) return 0;
        done += (size_t)n;
    }
    return 1;
}

static int relay(tap_t *tap, int direction, int from, int to)
{
    uint8_t chunk[65536];
    ssize_t n = read(from, chunk, sizeof chunk);
    size_t count = tap->said[direction].count;

    if (n <= 0) return 0;
    if (count + (size_t)n <= CAPACITY) {
        memcpy(tap->said[direction].bytes + count, chunk, (size_t)n);
        tap->said[direction].count = count + (size_t)n;
    }
    return tap_say(to, chunk, (size_t)n);
}

static void *tap_main(void *arg)
{
    tap_t *tap = arg;
    int client = accept(tap->listener, NULL, NULL), server = dial(tap->server_port);
    struct pollfd fds[] = { { client, POLLIN, 0 }, { server, POLLIN, 0 } };

    while (poll(fds, 2, -1) > 0) {
        if (fds[0].revents && !relay(tap, TAP_TO_SERVER, client, server)) break;
        if (fds[1].revents && !relay(tap, TAP_TO_CLIENT, server, client)) break;
    }
    close(client);
    close(server);
    return NULL;
}

void tap_open(tap_t *tap, const char *server)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof sa;

    tap->server_port = (uint16_t)atoi(strrchr(server, ':') + 1);
    for (int i = 0; i < 2; i++) {
        tap->said[i].bytes = malloc(CAPACITY);
        cr_assert(tap->said[i].bytes != NULL);
        tap->said[i].count = 0;
    }
    tap->listener = tcp_socket();
    cr_assert_eq(bind(tap->listener, (struct sockaddr *)&sa, sizeof sa), 0);
    cr_assert_eq(listen(tap->listener, 1), 0);
    cr_assert_eq(getsockname(tap->listener, (struct sockaddr *)&sa, &len), 0);
    tap->port = ntohs(sa.sin_port);
    cr_assert_eq(pthread_create(&tap->thread, NULL, tap_main, tap), 0);
}

void tap_close(tap_t *tap)
{
    pthread_join(tap->thread, NULL);
    close(tap->listener);
    free(tap->said[TAP_TO_SERVER].bytes);
    free(tap->said[TAP_TO_CLIENT].bytes);
}

int tap_shows(const tap_t *tap, const void *bytes, size_t size)
{
    for (int i = 0; i < 2; i++)
        if (memmem(tap->said[i].bytes, tap->said[i].count, bytes, size)) return 1;
    return 0;
}

int tap_dial(const tap_t *tap) { return dial(tap->server_port); }
