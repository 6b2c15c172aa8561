/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: "tcp://host:port", IPv6 in brackets. Names are resolved here, because libzmq would try
 * the first address of a name only. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "transport/zmq/zmq.h"

static psrt_status_t bad_addr(const char *text, const char *why)
{
    return psrti_fail(PSRT_ERR_INVALID, "address %s: %s", text, why);
}

/* Takes "host:port", "[v6]:port", "host", "[v6]" and "v6", with or without tcp:// in front. */
psrt_status_t zt_addr_split(const char *text, char host[ZT_HOST_MAX], uint16_t *port, int *has_port)
{
    const char *begin = strncmp(text, "tcp://", 6) == 0 ? text + 6 : text;
    const char *end, *colon;
    if (*begin == '[') {
        begin++;
        end = strchr(begin, ']');
        if (!end) return bad_addr(text, "']' is missing");
        colon = end + 1;
        if (*colon && *colon != ':') return bad_addr(text, "only :port may follow ']'");
    } else {
        colon = strchr(begin, ':');
        if (colon && strchr(colon + 1, ':')) colon = begin + strlen(begin); /* bare IPv6 */
        if (!colon) colon = begin + strlen(begin);
        end = colon;
    }
    if (end == begin) return bad_addr(text, "the host is missing");
    if ((size_t)(end - begin) >= ZT_HOST_MAX) return bad_addr(text, "the host name is too long");
    int64_t number = 0;
    if (*colon == ':' && psrti_parse_i64(colon + 1, 1, 65535, &number) != PSRT_OK)
        return bad_addr(text, "the port is not a number from 1 to 65535");
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    *port = (uint16_t)number;
    *has_port = *colon == ':';
    return PSRT_OK;
}

static int format(const struct sockaddr *sa, socklen_t len, char out[PSRT_ADDR_MAX])
{
    char host[NI_MAXHOST], service[NI_MAXSERV];
    if (getnameinfo(sa, len, host, sizeof(host), service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return 0;
    const char *pattern = sa->sa_family == AF_INET6 ? "tcp://[%s]:%s" : "tcp://%s:%s";
    return snprintf(out, PSRT_ADDR_MAX, pattern, host, service) < PSRT_ADDR_MAX;
}

/* Numbers first: they never ask a name server. */
psrt_status_t zt_addr_resolve(const char *host, uint16_t port, char (*out)[PSRT_ADDR_MAX],
                              size_t *count)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
    struct addrinfo *found = NULL;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    int rc = getaddrinfo(host, service, &hints, &found);
    if (rc == EAI_NONAME) {
        hints.ai_flags = 0;
        rc = getaddrinfo(host, service, &hints, &found);
    }
    if (rc != 0)
        return psrti_fail(PSRT_ERR_UNREACHABLE, "host %s: %s", host,
                          rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    *count = 0;
    for (struct addrinfo *ai = found; ai && *count < ZT_ADDRS_MAX; ai = ai->ai_next)
        if ((ai->ai_family == AF_INET || ai->ai_family == AF_INET6) &&
            format(ai->ai_addr, ai->ai_addrlen, out[*count]))
            ++*count;
    freeaddrinfo(found);
    if (*count == 0)
        return psrti_fail(PSRT_ERR_UNREACHABLE, "host %s has no IPv4 or IPv6 address", host);
    return PSRT_OK;
}

psrt_status_t zt_addr_of_listener(int fd, char addr[PSRT_ADDR_MAX])
{
    struct sockaddr_storage sa = { 0 };
    socklen_t len = sizeof(sa), size = sizeof(int);
    int listening = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || !listening ||
        getsockname(fd, (struct sockaddr *)&sa, &len) != 0 ||
        (sa.ss_family != AF_INET && sa.ss_family != AF_INET6) ||
        !format((struct sockaddr *)&sa, len, addr))
        return psrti_fail(PSRT_ERR_INVALID, "descriptor %d is not a listening TCP socket", fd);
    return PSRT_OK;
}

int zt_addr_is_wildcard(const char *addr)
{
    return strncmp(addr, "tcp://0.0.0.0:", 14) == 0 || strncmp(addr, "tcp://[::]:", 11) == 0;
}
