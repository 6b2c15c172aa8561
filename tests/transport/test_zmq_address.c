/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: what is listened on, what is dialled, and what is said when it does not work. */
#include "zmq_node.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Listening sockets with this port in /proc/net/tcp or tcp6; the address of the last as in the file. */
static unsigned listeners(const char *path, unsigned port, char addr[40])
{
    char line[512], local[40];
    unsigned local_port, state, found = 0;
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, " %*d: %39[0-9A-F]:%x %*[0-9A-F]:%*x %x", local, &local_port, &state) !=
                3 ||
            local_port != port || state != 0x0a)
            continue;
        found++;
        strcpy(addr, local);
    }
    fclose(file);
    return found;
}

static unsigned port_of(const char *addr) { return (unsigned)atoi(strrchr(addr, ':') + 1); }

static psrt_status_t try_listen(node_t *node, const char *bind_address)
{
    psrt_iface_params_t params = node_params(node, 1);
    params.listen = 1;
    params.bind_address = bind_address;
    return ZMQ_OPS->iface_open(&params, &node->iface);
}

static void listen_on(node_t *node, const char *bind_address)
{
    cr_assert_eq(try_listen(node, bind_address), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(ZMQ_OPS->iface_addr(node->iface, node->addr, sizeof(node->addr)), PSRT_OK);
}

/* Dials `addr`, which leads to `a`, and exchanges messages. */
static void use(node_t *a, const char *addr)
{
    node_t b = { 0 };
    psrt_iface_params_t params = node_params(&b, 2);
    node_open(&b, &params);
    cr_assert(ZMQ_OPS->reachable(b.iface, addr));
    node_dial(&b, addr);
    PUMP(b.up == 1 && a->up == 1, a, &b);
    node_exchange(a, &b);
    node_close(&b);
}

static void expect_only(const char *bind_address, const char *file, const char *want)
{
    node_t a = { 0 };
    char addr[40] = "", other[40];
    listen_on(&a, bind_address);
    const char *other_file =
        strcmp(file, "/proc/net/tcp") == 0 ? "/proc/net/tcp6" : "/proc/net/tcp";
    cr_assert_eq(listeners(file, port_of(a.addr), addr), 1);
    cr_assert_eq(listeners(other_file, port_of(a.addr), other), 0);
    cr_assert_str_eq(addr, want);
    use(&a, a.addr);
    node_close(&a);
}

static int have_ipv6(void)
{
    struct sockaddr_in6 sa = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    int ok = fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0;
    if (fd >= 0) close(fd);
    return ok;
}

Test(zmq_address, listens_where_told)
{
    expect_only(NULL, "/proc/net/tcp", "0100007F");
    expect_only("127.0.0.1", "/proc/net/tcp", "0100007F");
    expect_only("127.0.0.2", "/proc/net/tcp", "0200007F");
}

Test(zmq_address, ipv6)
{
    if (!have_ipv6()) cr_skip_test("no IPv6 on this machine");
    expect_only("[::1]", "/proc/net/tcp6", "00000000000000000000000001000000");
    expect_only("::1", "/proc/net/tcp6", "00000000000000000000000001000000");
}

/* A socket that keeps a port busy. */
static int occupy(unsigned *port)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    cr_assert(listen(fd, 16) == 0 && getsockname(fd, (struct sockaddr *)&sa, &len) == 0);
    *port = ntohs(sa.sin_port);
    return fd;
}

Test(zmq_address, port_given)
{
    node_t a = { 0 };
    char text[64], want[64];
    unsigned port;
    close(occupy(&port)); /* free again, and just now nobody else's */
    snprintf(text, sizeof(text), "127.0.0.1:%u", port);
    snprintf(want, sizeof(want), "tcp://127.0.0.1:%u", port);
    listen_on(&a, text);
    cr_assert_str_eq(a.addr, want);
    use(&a, a.addr);
    node_close(&a);
}

Test(zmq_address, port_in_use)
{
    node_t a = { 0 };
    char text[64];
    unsigned port;
    size_t fds = count_fds();
    int fd = occupy(&port);
    snprintf(text, sizeof(text), "127.0.0.1:%u", port);
    cr_assert_eq(try_listen(&a, text), PSRT_ERR_BUSY);
    cr_assert_not_null(strstr(psrt_last_error(), text), "%s", psrt_last_error());
    cr_assert_null(a.iface);
    close(fd);
    cr_assert_eq(count_fds(), fds);
}

Test(zmq_address, address_of_another_host)
{
    node_t a = { 0 };
    cr_assert_eq(try_listen(&a, "192.0.2.1"), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "192.0.2.1"), "%s", psrt_last_error());
}

Test(zmq_address, inherited_listener)
{
    node_t a = { 0 };
    char want[64];
    unsigned port;
    psrt_iface_params_t params = node_params(&a, 1);
    params.listen = 1;
    params.listen_fd = occupy(&port);
    node_open(&a, &params);
    snprintf(want, sizeof(want), "tcp://127.0.0.1:%u", port);
    cr_assert_str_eq(a.addr, want);
    use(&a, a.addr);
    node_close(&a);
}

Test(zmq_address, inherited_descriptor_is_no_listener)
{
    node_t a = { 0 };
    char want[64];
    psrt_iface_params_t params = node_params(&a, 1);
    int kinds[] = { dup(STDERR_FILENO), socket(AF_INET, SOCK_STREAM, 0), 1000000 };
    params.listen = 1;
    for (size_t i = 0; i < PSRTI_COUNT(kinds); i++) {
        params.listen_fd = kinds[i];
        cr_assert_eq(ZMQ_OPS->iface_open(&params, &a.iface), PSRT_ERR_INVALID);
        snprintf(want, sizeof(want), "descriptor %d is not a listening TCP socket", kinds[i]);
        cr_assert_str_eq(psrt_last_error(), want);
    }
    close(kinds[0]);
    close(kinds[1]);
}

/* Peers cannot dial 0.0.0.0: it is not published. The interface itself works. */
Test(zmq_address, wildcard)
{
    node_t a = { 0 };
    char addr[PSRT_ADDR_MAX];
    cr_assert_eq(try_listen(&a, "0.0.0.0"), PSRT_OK);
    cr_assert_eq(ZMQ_OPS->iface_addr(a.iface, addr, sizeof(addr)), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "tcp://0.0.0.0:"));
    node_close(&a);
}

Test(zmq_address, no_listener_no_address)
{
    node_t a = { 0 };
    char addr[PSRT_ADDR_MAX];
    psrt_iface_params_t params = node_params(&a, 1);
    node_open(&a, &params);
    cr_assert_eq(ZMQ_OPS->iface_addr(a.iface, addr, sizeof(addr)), PSRT_ERR_INVALID);
    node_close(&a);
}

Test(zmq_address, short_buffer)
{
    node_t a = { 0 };
    char addr[10];
    cr_assert_eq(try_listen(&a, NULL), PSRT_OK);
    cr_assert_eq(ZMQ_OPS->iface_addr(a.iface, addr, sizeof(addr)), PSRT_ERR_INVALID);
    node_close(&a);
}

Test(zmq_address, malformed)
{
    static const char *const dialled[] = { "",
                                           "tcp://",
                                           "tcp://:1",
                                           "tcp://127.0.0.1",
                                           "tcp://127.0.0.1:",
                                           "tcp://127.0.0.1:0",
                                           "tcp://127.0.0.1:65536",
                                           "tcp://127.0.0.1:1x",
                                           "tcp://127.0.0.1:-1",
                                           "tcp://[::1:5",
                                           "tcp://[::1]5",
                                           "tcp://fd00::1",
                                           "127.0.0.1:5",
                                           "shm:/x" };
    static const char *const bound[] = { ":5", "[::1", "[::1]x", "127.0.0.1:x", "127.0.0.1:99999" };
    node_t a = { 0 };
    psrt_ep_t *ep = NULL;
    psrt_iface_params_t params = node_params(&a, 1);
    node_open(&a, &params);
    for (size_t i = 0; i < PSRTI_COUNT(dialled); i++) {
        cr_assert_eq(ZMQ_OPS->ep_open(a.iface, dialled[i], &ep), PSRT_ERR_INVALID, "%s",
                     dialled[i]);
        cr_assert_not_null(strstr(psrt_last_error(), dialled[i]), "%s", psrt_last_error());
    }
    cr_assert_null(ep);
    cr_assert_not(ZMQ_OPS->reachable(a.iface, "shm:/x"));
    node_close(&a);
    for (size_t i = 0; i < PSRTI_COUNT(bound); i++) {
        cr_assert_eq(try_listen(&a, bound[i]), PSRT_ERR_INVALID, "%s", bound[i]);
        cr_assert_not_null(strstr(psrt_last_error(), bound[i]), "%s", psrt_last_error());
    }
}

Test(zmq_address, long_host_name)
{
    node_t a = { 0 };
    psrt_ep_t *ep;
    char addr[2048] = "tcp://";
    psrt_iface_params_t params = node_params(&a, 1);
    memset(addr + 6, 'x', 2000);
    strcpy(addr + 2006, ":5");
    node_open(&a, &params);
    cr_assert_eq(ZMQ_OPS->ep_open(a.iface, addr, &ep), PSRT_ERR_INVALID);
    node_close(&a);
}

/* Each address of the name is tried: whichever family comes first, either listener is reached. */
Test(zmq_address, host_name)
{
    static const char *const bind_addresses[] = { "127.0.0.1", "localhost" };
    for (size_t i = 0; i < PSRTI_COUNT(bind_addresses); i++) {
        node_t a = { 0 };
        char addr[PSRT_ADDR_MAX];
        listen_on(&a, bind_addresses[i]);
        snprintf(addr, sizeof(addr), "tcp://localhost:%u", port_of(a.addr));
        use(&a, addr);
        node_close(&a);
    }
}

Test(zmq_address, nobody_there)
{
    node_t a = { 0 };
    char addr[64];
    unsigned port;
    psrt_iface_params_t params = node_params(&a, 1);
    close(occupy(&port));
    snprintf(addr, sizeof(addr), "tcp://127.0.0.1:%u", port);
    node_open(&a, &params);
    node_dial(&a, addr);
    PUMP_NS(LOST_NS, a.lost == 1, &a);
    cr_assert_eq(a.why, PSRT_ERR_UNREACHABLE);
    cr_assert_eq(a.up, 0);
    node_close(&a);
}
