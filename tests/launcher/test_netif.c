/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/netif.h"

#include <string.h>

#include "base/util.h"
#include "support/test.h"

/* What a host of a cluster has: a bridge of containers, a network for users, a fast one. */
static const psrti_netif_t alpha[] = { { "docker0", "172.17.0.1", 16 },
                                       { "eth0", "10.1.0.1", 24 },
                                       { "ib0", "10.9.0.1", 16 } };
static const psrti_netif_t beta[] = { { "ib0", "10.9.0.2", 16 },
                                      { "docker0", "172.17.0.1", 16 },
                                      { "eth0", "10.1.0.2", 24 } };
/* In another network for users. */
static const psrti_netif_t gamma_[] = { { "eth0", "10.2.0.3", 24 }, { "eth1", "fd00::3", 64 } };

Test(netif, a_network_that_all_share_comes_first)
{
    psrti_netif_choice_t hosts[] = { { .netifs = alpha, .count = 3, .usable = 0x6 },
                                     { .netifs = beta, .count = 3, .usable = 0x5 } };
    psrti_netif_choose(hosts, 2);
    cr_assert_str_eq(alpha[hosts[0].chosen].address, "10.1.0.1");
    cr_assert_str_eq(beta[hosts[1].chosen].address, "10.1.0.2");
    hosts[0].usable = 0x4; /* as --iface ib0, or where eth0 did not answer */
    psrti_netif_choose(hosts, 2);
    cr_assert_str_eq(alpha[hosts[0].chosen].address, "10.9.0.1");
    cr_assert_str_eq(beta[hosts[1].chosen].address, "10.9.0.2");
}

Test(netif, without_a_shared_network_each_has_its_first)
{
    psrti_netif_choice_t hosts[] = { { .netifs = alpha, .count = 3, .usable = 0x6 },
                                     { .netifs = gamma_, .count = 2, .usable = 0x3 } };
    psrti_netif_choose(hosts, 2);
    cr_assert_str_eq(alpha[hosts[0].chosen].address, "10.1.0.1");
    cr_assert_str_eq(gamma_[hosts[1].chosen].address, "10.2.0.3");
    hosts[1].usable = 0x2;
    psrti_netif_choose(hosts, 2);
    cr_assert_str_eq(gamma_[hosts[1].chosen].address, "fd00::3");
}

Test(netif, subnets)
{
    static const struct {
        const char *address, *subnet;
        int inside;
    } rows[] = {
        { "10.1.2.3", "10.1.0.0/16", 1 },   { "10.2.2.3", "10.1.0.0/16", 0 },
        { "10.1.2.3", "10.1.2.3/32", 1 },   { "10.1.2.2", "10.1.2.3/32", 0 },
        { "10.1.127.1", "10.1.0.0/17", 1 }, { "10.1.128.1", "10.1.0.0/17", 0 },
        { "1.2.3.4", "0.0.0.0/0", 1 },      { "fd00::1", "0.0.0.0/0", 0 },
        { "fd12::1", "fd00::/8", 1 },       { "fe80::1", "fd00::/8", 0 },
        { "fd00::1", "fd00::1/128", 1 },    { "10.1.2.3", "::/0", 0 },
    };
    for (size_t i = 0; i < PSRTI_COUNT(rows); i++)
        cr_assert_eq(psrti_netif_in_subnet(rows[i].address, rows[i].subnet), rows[i].inside,
                     "%s %s", rows[i].address, rows[i].subnet);
}

Test(netif, texts_that_are_no_subnets)
{
    static const char *const texts[] = { "",           "10.1.0.0",    "10.1.0.0/", "10.1.0.0/33",
                                         "/16",        "10.1.0.0/-1", "10.1/16",   "eth0/16",
                                         "fd00::/129", "10.1.0.0/1x", "a/b/c",     "::/" };
    for (size_t i = 0; i < PSRTI_COUNT(texts); i++)
        cr_assert_eq(psrti_netif_check_subnet(texts[i]), PSRT_ERR_INVALID, "%s", texts[i]);
    cr_assert_eq(psrti_netif_check_subnet("10.1.0.0/16"), PSRT_OK);
}

Test(netif, this_host_has_an_address)
{
    psrti_netif_t netifs[PSRTI_NETIF_MAX];
    struct sockaddr_storage sa;
    size_t count = psrti_netif_list(netifs);
    cr_assert_gt(count, 0);
    for (size_t i = 0; i < count; i++)
        cr_assert(psrti_netif_sockaddr(netifs[i].address, 1, &sa), "%s", netifs[i].address);
    cr_assert_not(psrti_netif_sockaddr("localhost", 1, &sa));
}
