/* SPDX-License-Identifier: Apache-2.0 */
#include "support/test.h"

#include <string.h>

#include "transport/transport.h"

Test(registry, names_and_scores)
{
    const psrt_transport_ops_t *const *all = psrti_transport_all();
    for (size_t i = 0; all[i]; i++) {
        cr_assert(all[i]->name[0] && all[i]->size <= sizeof *all[i]);
        cr_assert(psrti_transport_find(all[i]->name) == all[i]);
        for (size_t k = 0; k < i; k++) {
            cr_assert(strcmp(all[i]->name, all[k]->name) != 0);
            cr_assert(all[k]->score > all[i]->score, "%s before %s", all[k]->name, all[i]->name);
        }
    }
    cr_assert(psrti_transport_find("inproc") == &psrti_transport_inproc);
    cr_assert(psrti_transport_find("shm") == &psrti_transport_shm);
    cr_assert(psrti_transport_find("zmq") == &psrti_transport_zmq);
    cr_assert(psrti_transport_find("rdma") == NULL);
    cr_assert(psrti_transport_find("") == NULL);
}
