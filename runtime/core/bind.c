/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/bind.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

#define HOST_MAX 256

/* "host", "host:port", "[v6]", "[v6]:port", "v6" (more than one colon) into host and ":port" or "". */
static psrt_status_t split(const char *what, const char *text, char host[HOST_MAX],
                           const char **port_p)
{
    const char *end = text + strlen(text), *colon = strchr(text, ':');
    if (*text == '[') {
        const char *close = strchr(text, ']');
        if (!close || (close[1] && close[1] != ':')) goto err_malformed;
        *port_p = close + 1;
        text++;
        end = close;
    } else if (colon && !strchr(colon + 1, ':')) {
        *port_p = end = colon;
    } else {
        *port_p = end;
    }
    if (end == text || end - text >= HOST_MAX) goto err_malformed;
    memcpy(host, text, (size_t)(end - text));
    host[end - text] = '\0';
    int64_t port;
    if (**port_p && psrti_parse_i64(*port_p + 1, 0, 65535, &port) != PSRT_OK) goto err_malformed;
    return PSRT_OK;
err_malformed:
    return psrti_fail(
        PSRT_ERR_INVALID,
        "%s \"%s\": write host, host:port, or [ipv6]:port with a port from 0 to 65535", what, text);
}

static psrt_status_t format(const struct sockaddr *sa, const char *port, char *out, size_t size)
{
    char ip[INET6_ADDRSTRLEN];
    int v6 = sa->sa_family == AF_INET6;
    const void *addr = v6 ? (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr
                          : (const void *)&((const struct sockaddr_in *)sa)->sin_addr;
    inet_ntop(sa->sa_family, addr, ip, sizeof ip);
    int n = snprintf(out, size, v6 ? "[%s]%s" : "%s%s", ip, port);
    return (size_t)n < size ? PSRT_OK : psrti_fail(PSRT_ERR_LIMIT, "address %s is too long", ip);
}

static int is_usable(const struct ifaddrs *i)
{
    if (!i->ifa_addr) return 0;
    if (i->ifa_addr->sa_family == AF_INET) return 1;
    return i->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
}

/* First IPv4 address of an interface, else its first IPv6 one. */
static const struct sockaddr *of_interface(const struct ifaddrs *all, const char *name)
{
    const struct sockaddr *found = NULL;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!is_usable(i) || strcmp(i->ifa_name, name) != 0) continue;
        if (i->ifa_addr->sa_family == AF_INET) return i->ifa_addr;
        if (!found) found = i->ifa_addr;
    }
    return found;
}

static psrt_status_t nothing_found(const char *what, const struct ifaddrs *all, const char *host,
                                   int err)
{
    char list[256] = "";
    size_t pos = 0;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next)
        if (is_usable(i) && !strstr(list, i->ifa_name))
            psrti_append(list, sizeof list, &pos, "%s%s", pos ? ", " : "", i->ifa_name);
    return psrti_fail(PSRT_ERR_INVALID,
                      "%s \"%s\" is no address, interface or known host (%s); interfaces: %s", what,
                      host, gai_strerror(err), list);
}

static psrt_status_t resolve(const char *what, const char *wanted, char *out, size_t size)
{
    char host[HOST_MAX];
    const char *port;
    psrt_status_t rc = split(what, wanted, host, &port);
    if (rc) return rc;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) all = NULL;
    const struct sockaddr *sa = of_interface(all, host);
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found = NULL;
    if (sa) {
        rc = format(sa, port, out, size);
    } else {
        int err = getaddrinfo(host, NULL, &hints, &found);
        rc = err ? nothing_found(what, all, host, err) : format(found->ai_addr, port, out, size);
    }
    if (found) freeaddrinfo(found);
    if (all) freeifaddrs(all);
    return rc;
}

/* The address from which a datagram to the coordinator would leave. Nothing is sent. */
static psrt_status_t towards(const char *coordinator, char *out, size_t size)
{
    char host[HOST_MAX];
    const char *port;
    psrt_status_t rc = split("PSRT_COORDINATOR", coordinator, host, &port);
    if (rc) return rc;
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM }, *found = NULL;
    int err = getaddrinfo(host, *port ? port + 1 : "9", &hints, &found);
    if (err)
        return psrti_fail(PSRT_ERR_UNREACHABLE, "coordinator %s: %s", coordinator,
                          gai_strerror(err));
    rc = PSRT_ERR_UNREACHABLE;
    for (const struct addrinfo *a = found; a && rc; a = a->ai_next) {
        struct sockaddr_storage own = { 0 };
        socklen_t len = sizeof own;
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0) continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
            getsockname(fd, (struct sockaddr *)&own, &len) == 0)
            rc = format((struct sockaddr *)&own, "", out, size);
        close(fd);
    }
    freeaddrinfo(found);
    if (rc == PSRT_ERR_UNREACHABLE)
        psrti_fail(rc, "no route leads to the coordinator %s; set PSRT_BIND_ADDRESS", coordinator);
    return rc;
}

static int is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0;
}

/* Hosts files often give the own name a loopback address. That one is fine for a job on one host; other
 * hosts would reach themselves by it. An address or interface that was asked for is taken as it is. */
static psrt_status_t refuse_loopback_name(const char *what, const char *wanted, const char *got,
                                          const char *coordinator)
{
    char own[HOST_MAX];
    if (!is_loopback(got) || is_loopback(wanted) || strcmp(wanted, "::1") == 0) return PSRT_OK;
    if (strcmp(wanted, "lo") == 0 || strcmp(wanted, "localhost") == 0) return PSRT_OK;
    if (towards(coordinator, own, sizeof own) || is_loopback(own)) return PSRT_OK;
    return psrti_fail(
        PSRT_ERR_INVALID,
        "%s \"%s\" is the loopback address %s, by which other hosts reach themselves; "
        "the way to the coordinator %s starts at %s: name that address or an interface",
        what, wanted, got, coordinator, own);
}

psrt_status_t psrti_bind_address(const char *what, const char *wanted, const char *coordinator,
                                 char *out, size_t size)
{
    int remote = coordinator && strncmp(coordinator, "tcp://", 6) == 0;
    if (wanted && *wanted) {
        psrt_status_t rc = resolve(what, wanted, out, size);
        if (rc || !remote) return rc;
        return refuse_loopback_name(what, wanted, out, coordinator + 6);
    }
    if (remote) return towards(coordinator + 6, out, size);
    snprintf(out, size, "127.0.0.1");
    return PSRT_OK;
}

/* Gives `address` the port, in place of one that it has. */
static psrt_status_t set_port(char address[PSRT_ADDR_MAX], int64_t port)
{
    char host[HOST_MAX];
    const char *old;
    psrt_status_t rc = split("PSRT_BIND_ADDRESS", address, host, &old);
    if (rc) return rc;
    size_t at = strlen(address) - strlen(old);
    if ((size_t)snprintf(address + at, PSRT_ADDR_MAX - at, ":%d", (int)port) >= PSRT_ADDR_MAX - at)
        return psrti_fail(PSRT_ERR_LIMIT, "address %s is too long", address);
    return PSRT_OK;
}

psrt_status_t psrti_bind_thread(const psrti_config_t *config, const char *coordinator,
                                uint32_t thread, char address[PSRT_ADDR_MAX], int *fd_p)
{
    char host[HOST_MAX];
    const char *colon;
    int64_t port = psrti_config_int(config, PSRTI_CONF_PORT);
    psrt_status_t rc =
        psrti_bind_address("PSRT_BIND_ADDRESS", psrti_config_text(config, PSRTI_CONF_BIND_ADDRESS),
                           coordinator, address, PSRT_ADDR_MAX);
    if (!rc) rc = split("PSRT_BIND_ADDRESS", address, host, &colon);
    if (rc) return rc;
    if (*colon) psrti_parse_i64(colon + 1, 0, 65535, &port);
    *fd_p = thread ? -1 : (int)psrti_config_int(config, PSRTI_CONF_LISTEN_FD);
    if (!port || *fd_p >= 0) return PSRT_OK;
    if (port + thread > 65535)
        return psrti_fail(
            PSRT_ERR_INVALID,
            "port %d leaves none for thread %u of this server: choose a lower PSRT_PORT", (int)port,
            thread);
    return set_port(address, port + thread);
}
