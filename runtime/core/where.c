/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/where.h"

#include <sys/stat.h>

#include "base/util.h"
#include "transport/shm/shm.h"

uint64_t psrti_where_host(const char *job_dir)
{
    uint64_t host = psrti_shm_host_id();
    struct stat st;

    if (!job_dir || stat(job_dir, &st) != 0) return host;
    return psrti_mix64(psrti_mix64(host + (uint64_t)st.st_dev) + (uint64_t)st.st_ino);
}
