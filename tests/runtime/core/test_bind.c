/* SPDX-License-Identifier: Apache-2.0 */
/* Which address a task listens on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/core/bind.h"
#include "support/test.h"

#define WHAT "PSRT_SOME_ADDRESS"

static void gives(const char *wanted, const char *coordinator, const char *expect)
{
    char out[PSRT_ADDR_MAX] = "";
    cr_assert_eq(psrti_bind_address(WHAT, wanted, coordinator, out, sizeof out), PSRT_OK, "%s: %s",
                 wanted, psrt_last_error());
    cr_assert_str_eq(out, expect, "%s gives %s, not %s", wanted, out, expect);
}

Test(bind, addresses)
{
    gives("127.0.0.1", NULL, "127.0.0.1");
    gives("127.0.0.1:5000", NULL, "127.0.0.1:5000");
    gives("127.0.0.1:0", NULL, "127.0.0.1:0");
    gives("10.255.1.2:65535", NULL, "10.255.1.2:65535"); /* not ours: the bind will tell */
    gives("::1", NULL, "[::1]");
    gives("[::1]", NULL, "[::1]");
    gives("[::1]:5000", NULL, "[::1]:5000");
    gives("0:0:0:0:0:0:0:1", NULL, "[::1]");
}

Test(bind, interface_by_name)
{
    gives("lo", NULL, "127.0.0.1");
    gives("lo:77", NULL, "127.0.0.1:77");
}

Test(bind, a_given_address_wins_over_the_coordinator)
{
    gives("127.0.0.1:1", "tcp://10.0.0.1:5000", "127.0.0.1:1");
}

Test(bind, nothing_given_is_the_way_to_the_coordinator)
{
    gives("", "tcp://127.0.0.1:5000", "127.0.0.1");
    gives(NULL, "tcp://127.0.0.1:5000", "127.0.0.1");
    gives("", "tcp://127.0.0.1", "127.0.0.1");
    gives("", "inproc:1.2", "127.0.0.1");
    gives("", "", "127.0.0.1");
    gives("", NULL, "127.0.0.1");
}

/* Each is refused, and the text says which variable and which value. */
Test(bind, malformed)
{
    static const char *const bad[] = { ":",
                                       ":5000",
                                       "[",
                                       "[]",
                                       "[]:5",
                                       "[::1",
                                       "[::1]5000",
                                       "[::1]x",
                                       "127.0.0.1:",
                                       "127.0.0.1:x",
                                       "127.0.0.1:-1",
                                       "127.0.0.1:65536",
                                       "127.0.0.1: 5",
                                       "lo:99999999999999999999",
                                       "no.such.interface0",
                                       "no.such.host.invalid:80",
                                       "300.1.1.1" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char out[PSRT_ADDR_MAX] = "untouched";
        cr_assert_eq(psrti_bind_address(WHAT, bad[i], NULL, out, sizeof out), PSRT_ERR_INVALID,
                     "\"%s\" gives %s", bad[i], out);
        cr_assert_not_null(strstr(psrt_last_error(), WHAT), "%s: %s", bad[i], psrt_last_error());
    }
}

Test(bind, an_unknown_name_lists_the_interfaces)
{
    char out[PSRT_ADDR_MAX];
    cr_assert_eq(psrti_bind_address(WHAT, "eth77", NULL, out, sizeof out), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "\"eth77\""), "%s", psrt_last_error());
    cr_assert_not_null(strstr(psrt_last_error(), "interfaces: "), "%s", psrt_last_error());
    cr_assert_not_null(strstr(psrt_last_error(), "lo"), "%s", psrt_last_error());
}

Test(bind, names_that_are_too_long)
{
    char name[600], out[PSRT_ADDR_MAX];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    cr_assert_eq(psrti_bind_address(WHAT, name, NULL, out, sizeof out), PSRT_ERR_INVALID);
    memcpy(name, "tcp://", 6);
    cr_assert_eq(psrti_bind_address(WHAT, "", name, out, sizeof out), PSRT_ERR_INVALID);
}

Test(bind, an_unknown_coordinator_is_named)
{
    char out[PSRT_ADDR_MAX];
    cr_assert_eq(psrti_bind_address(WHAT, "", "tcp://no.such.host.invalid:1", out, sizeof out),
                 PSRT_ERR_UNREACHABLE);
    cr_assert_not_null(strstr(psrt_last_error(), "no.such.host.invalid"), "%s", psrt_last_error());
    cr_assert_eq(psrti_bind_address(WHAT, "", "tcp://[::1", out, sizeof out), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "PSRT_COORDINATOR"), "%s", psrt_last_error());
}

Test(bind, an_address_that_does_not_fit_is_an_error)
{
    char out[8];
    cr_assert_eq(psrti_bind_address(WHAT, "127.0.0.1", NULL, out, sizeof out), PSRT_ERR_LIMIT);
}

static void thread_gets(uint32_t thread, const char *expect, int expect_fd)
{
    char out[PSRT_ADDR_MAX];
    int fd = -2;
    psrti_config_t *config;
    cr_assert_eq(psrti_config_create(&config), PSRT_OK);
    cr_assert_eq(psrti_bind_thread(config, "tcp://127.0.0.1:5000", thread, out, &fd), PSRT_OK, "%s",
                 psrt_last_error());
    cr_assert_str_eq(out, expect);
    cr_assert_eq(fd, expect_fd);
    psrti_config_destroy(config);
}

Test(bind, ports_of_threads)
{
    thread_gets(0, "127.0.0.1", -1);
    setenv("PSRT_PORT", "4000", 1);
    thread_gets(0, "127.0.0.1:4000", -1);
    thread_gets(3, "127.0.0.1:4003", -1);
    setenv("PSRT_BIND_ADDRESS", "[::1]", 1);
    thread_gets(1, "[::1]:4001", -1);
    setenv("PSRT_BIND_ADDRESS", "lo:90", 1);
    thread_gets(2, "127.0.0.1:92", -1);
    setenv("PSRT_LISTEN_FD", "7", 1);
    thread_gets(0, "127.0.0.1:90", 7);
    thread_gets(1, "127.0.0.1:91", -1);
}

Test(bind, threads_beyond_the_last_port)
{
    char out[PSRT_ADDR_MAX];
    int fd;
    psrti_config_t *config;
    setenv("PSRT_PORT", "65535", 1);
    cr_assert_eq(psrti_config_create(&config), PSRT_OK);
    cr_assert_eq(psrti_bind_thread(config, NULL, 0, out, &fd), PSRT_OK);
    cr_assert_eq(psrti_bind_thread(config, NULL, 1, out, &fd), PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(psrt_last_error(), "PSRT_PORT"), "%s", psrt_last_error());
    psrti_config_destroy(config);
}
