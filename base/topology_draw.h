/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as a drawing: packages, memory, shared caches, cores, devices, and which of the cores this process
 * may use. */
#ifndef PSRTI_BASE_TOPOLOGY_DRAW_H
#define PSRTI_BASE_TOPOLOGY_DRAW_H

#include <psrt/psrt.h>

/* See psrt_topology_draw. */
psrt_status_t psrti_topology_draw(psrt_drawing_t as, char **text_p);

#endif
