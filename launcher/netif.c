/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/netif.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"

typedef struct ip {
    uint8_t bytes[16];
    unsigned bits; /* 32 or 128; 0: none */
} ip_t;

static ip_t parse(const char *text)
{
    ip_t ip = { 0 };
    if (inet_pton(AF_INET, text, ip.bytes) == 1)
        ip.bits = 32;
    else if (inet_pton(AF_INET6, text, ip.bytes) == 1)
        ip.bits = 128;
    return ip;
}

static int same_prefix(const ip_t *a, const ip_t *b, unsigned prefix)
{
    if (!a->bits || a->bits != b->bits || prefix > a->bits) return 0;
    if (memcmp(a->bytes, b->bytes, prefix / 8)) return 0;
    unsigned rest = prefix % 8, at = prefix / 8;
    return !rest || (a->bytes[at] ^ b->bytes[at]) >> (8 - rest) == 0;
}

/* ---- this host ------------------------------------------------------------------------------- */

static unsigned count_bits(const uint8_t *mask, size_t len)
{
    unsigned bits = 0;
    for (size_t i = 0; i < len; i++)
        bits += (unsigned)__builtin_popcount(mask[i]);
    return bits;
}

static int fill(const uv_interface_address_t *from, psrti_netif_t *to)
{
    snprintf(to->interface, sizeof to->interface, "%s", from->name);
    if (from->address.address4.sin_family == AF_INET) {
        inet_ntop(AF_INET, &from->address.address4.sin_addr, to->address, sizeof to->address);
        to->prefix = count_bits((const uint8_t *)&from->netmask.netmask4.sin_addr, 4);
        return 1;
    }
    inet_ntop(AF_INET6, &from->address.address6.sin6_addr, to->address, sizeof to->address);
    to->prefix = count_bits((const uint8_t *)&from->netmask.netmask6.sin6_addr, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&from->address.address6.sin6_addr);
}

size_t psrti_netif_list(psrti_netif_t netifs[PSRTI_NETIF_MAX])
{
    uv_interface_address_t *all;
    int all_count;
    size_t count = 0;
    if (uv_interface_addresses(&all, &all_count)) return 0;
    for (int internal = 0; internal < 2 && !count; internal++)
        for (int family = 0; family < 2; family++)
            for (int i = 0; i < all_count && count < PSRTI_NETIF_MAX; i++)
                if (!all[i].is_internal == !internal &&
                    (all[i].address.address4.sin_family == AF_INET) == !family)
                    count += (size_t)fill(&all[i], &netifs[count]);
    uv_free_interface_addresses(all, all_count);
    return count;
}

/* ---- networks -------------------------------------------------------------------------------- */

static int parse_subnet(const char *subnet, ip_t *ip, unsigned *prefix)
{
    char address[INET6_ADDRSTRLEN];
    int64_t bits;
    size_t len = strcspn(subnet, "/");
    if (len >= sizeof address) return 0;
    snprintf(address, sizeof address, "%.*s", (int)len, subnet);
    *ip = parse(address);
    if (!ip->bits || !subnet[len] || psrti_parse_i64(subnet + len + 1, 0, ip->bits, &bits))
        return 0;
    *prefix = (unsigned)bits;
    return 1;
}

psrt_status_t psrti_netif_check_subnet(const char *subnet)
{
    ip_t ip;
    unsigned prefix;
    if (parse_subnet(subnet, &ip, &prefix)) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "subnet %s: not a network such as 10.1.0.0/16 or fd00::/8",
                      subnet);
}

int psrti_netif_in_subnet(const char *address, const char *subnet)
{
    ip_t ip = parse(address), network;
    unsigned prefix;
    return parse_subnet(subnet, &network, &prefix) && same_prefix(&ip, &network, prefix);
}

int psrti_netif_same_network(const psrti_netif_t *a, const psrti_netif_t *b)
{
    ip_t x = parse(a->address), y = parse(b->address);
    return a->prefix == b->prefix && same_prefix(&x, &y, a->prefix);
}

int psrti_netif_sockaddr(const char *address, uint16_t port, struct sockaddr_storage *sa)
{
    *sa = (struct sockaddr_storage){ 0 };
    return !uv_ip4_addr(address, port, (struct sockaddr_in *)sa) ||
           !uv_ip6_addr(address, port, (struct sockaddr_in6 *)sa);
}

/* ---- listening ------------------------------------------------------------------------------- */

/* IPv6 takes IPv4 as well, unless this host has none. */
static int listen_any(uint16_t *port_p)
{
    struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
    struct sockaddr_in any4 = { .sin_family = AF_INET };
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof any6;
    if (fd >= 0 && !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) &&
        !bind(fd, (struct sockaddr *)&any6, sizeof any6) &&
        !getsockname(fd, (struct sockaddr *)&any6, &len)) {
        *port_p = ntohs(any6.sin6_port);
        return fd;
    }
    if (fd >= 0) close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    len = sizeof any4;
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&any4, sizeof any4) &&
        !getsockname(fd, (struct sockaddr *)&any4, &len)) {
        *port_p = ntohs(any4.sin_port);
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

psrt_status_t psrti_netif_listen(uv_loop_t *loop, uv_tcp_t *tcp, uv_connection_cb on_connection,
                                 uint16_t *port_p)
{
    int fd = listen_any(port_p);
    if (fd < 0) return psrti_fail(PSRT_ERR_IO, "listening on any port: %s", strerror(errno));
    uv_tcp_init(loop, tcp);
    int rc = uv_tcp_open(tcp, fd);
    if (!rc) rc = uv_listen((uv_stream_t *)tcp, SOMAXCONN, on_connection);
    if (!rc) return PSRT_OK;
    uv_close((uv_handle_t *)tcp, NULL);
    return psrti_fail(PSRT_ERR_IO, "listening on port %u: %s", *port_p, uv_strerror(rc));
}

/* ---- choice ---------------------------------------------------------------------------------- */

static int is_usable(const psrti_netif_choice_t *host, size_t i) { return host->usable >> i & 1; }

/* Its usable address in that network; host->count: none. NULL: in any. */
static size_t find(const psrti_netif_choice_t *host, const psrti_netif_t *network)
{
    size_t i = 0;
    while (i < host->count && !(is_usable(host, i) &&
                                (!network || psrti_netif_same_network(&host->netifs[i], network))))
        i++;
    return i;
}

static int all_have(const psrti_netif_choice_t *hosts, size_t count, const psrti_netif_t *network)
{
    for (size_t h = 0; h < count; h++)
        if (find(&hosts[h], network) == hosts[h].count) return 0;
    return 1;
}

void psrti_netif_choose(psrti_netif_choice_t *hosts, size_t count)
{
    const psrti_netif_t *shared = NULL;
    for (size_t i = 0; i < hosts[0].count && !shared; i++)
        if (is_usable(&hosts[0], i) && all_have(hosts, count, &hosts[0].netifs[i]))
            shared = &hosts[0].netifs[i];
    for (size_t h = 0; h < count; h++)
        hosts[h].chosen = find(&hosts[h], shared);
}

static void on_refused(uv_handle_t *handle) { free(handle); }

void psrti_netif_refuse(uv_stream_t *listener)
{
    uv_tcp_t *tcp = psrti_xcalloc(1, sizeof *tcp);
    uv_tcp_init(listener->loop, tcp);
    uv_accept(listener, (uv_stream_t *)tcp);
    uv_close((uv_handle_t *)tcp, on_refused);
}
