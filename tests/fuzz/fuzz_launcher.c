/* SPDX-License-Identifier: Apache-2.0 */
/* What the launcher reads. Input: a letter, then what it reads: j job file, s assignments of --set, one a line, b an
 * agent's bootstrap, f facts of a host, h Slurm's list of hosts, c what happens on a channel (launcher_channel.c). */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "fuzz.h"
#include "launcher/agentmsg.h"
#include "launcher/hostlist.h"
#include "launcher/jobfile.h"
#include "launcher_channel.h"

/* ---- the job file ------------------------------------------------------------------------------ */

static void check_job(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->role_count; i++) {
        const psrti_role_t *role = &job->roles[i];
        FUZZ_ASSERT(psrti_role_name_is_valid(role->name));
        FUZZ_ASSERT(role->count <= PSRTI_JOB_TASKS_MAX && role->ports <= PSRTI_JOB_PORTS_MAX &&
                    role->gpus <= PSRTI_JOB_GPUS_MAX);
        FUZZ_ASSERT(!role->argv || !role->shell);
        FUZZ_ASSERT(psrti_job_role(job, role->name) == role);
        for (size_t k = 0; k < role->env.count; k++)
            FUZZ_ASSERT(strchr(role->env.entries[k], '='));
    }
    for (size_t i = 0; i < job->host_count; i++)
        FUZZ_ASSERT(job->hosts[i].name && *job->hosts[i].name);
}

static void job_file(const uint8_t *data, size_t size)
{
    char path[40];
    psrti_job_t job = { .name = NULL };
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    psrti_job_init(&job);
    if (psrti_jobfile_load(&job, path) == PSRT_OK) {
        check_job(&job);
        fuzz_accept();
    }
    psrti_job_release(&job);
    close(fd);
}

static void assignments(fuzz_in_t *in)
{
    psrti_job_t job = { .name = NULL };
    psrti_job_init(&job);
    while (in->left) {
        char *text = fuzz_text(in, '\n');
        psrti_jobfile_set(&job, text) == PSRT_OK ? fuzz_accept() : fuzz_refuse();
        free(text);
    }
    check_job(&job);
    psrti_job_release(&job);
}

/* ---- agents ------------------------------------------------------------------------------------ */

/* Written and read again it is the same. */
static void bootstrap(const uint8_t *data, size_t size)
{
    psrti_bootstrap_t b, again;
    psrti_wire_out_t w = { .data = NULL }, w2 = { .data = NULL };
    if (size < PSRTI_BOOTSTRAP_HEAD || psrti_bootstrap_length(data) != size - PSRTI_BOOTSTRAP_HEAD)
        return;
    if (psrti_bootstrap_read(data + PSRTI_BOOTSTRAP_HEAD, size - PSRTI_BOOTSTRAP_HEAD, &b)) return;
    psrti_bootstrap_write(&b, &w);
    FUZZ_ASSERT(psrti_bootstrap_length(w.data) == w.len - PSRTI_BOOTSTRAP_HEAD);
    FUZZ_ASSERT(psrti_bootstrap_read(w.data + PSRTI_BOOTSTRAP_HEAD, w.len - PSRTI_BOOTSTRAP_HEAD,
                                     &again) == PSRT_OK);
    psrti_bootstrap_write(&again, &w2);
    FUZZ_ASSERT(w.len == w2.len && memcmp(w.data, w2.data, w.len) == 0);
    FUZZ_ASSERT(memcmp(w.data + PSRTI_BOOTSTRAP_HEAD, data + PSRTI_BOOTSTRAP_HEAD,
                       4 + sizeof b.key.nonce + sizeof b.key.secret) == 0);
    psrti_bootstrap_clear(&b);
    psrti_bootstrap_clear(&again);
    psrti_wire_clear(&w);
    psrti_wire_clear(&w2);
    fuzz_accept();
}

/* Texts may be cut, and ports are ports: what was read is kept, whatever came. */
static void facts(const uint8_t *data, size_t size)
{
    psrti_wire_in_t r = { .at = data, .end = data + size };
    psrti_facts_t f, again;
    psrti_wire_out_t w = { .data = NULL };
    psrti_facts_read(&r, &f);
    FUZZ_ASSERT(f.netif_count <= PSRTI_NETIF_MAX);
    if (!psrti_wire_is_done(&r)) return;
    psrti_facts_write(&f, &w);
    psrti_wire_in_t r2 = { .at = w.data, .end = w.data + w.len };
    psrti_facts_read(&r2, &again);
    FUZZ_ASSERT(psrti_wire_is_done(&r2) && strcmp(f.host, again.host) == 0);
    FUZZ_ASSERT(f.netif_count == again.netif_count && f.wall_ns == again.wall_ns);
    for (size_t i = 0; i < f.netif_count; i++)
        FUZZ_ASSERT(strcmp(f.netifs[i].address, again.netifs[i].address) == 0 &&
                    f.netifs[i].prefix == again.netifs[i].prefix);
    psrti_wire_clear(&w);
    fuzz_accept();
}

static void host_list(const char *text)
{
    char **names = NULL;
    size_t count = 0;
    if (psrti_hostlist_expand(text, &names, &count)) {
        FUZZ_ASSERT(!names);
        return;
    }
    FUZZ_ASSERT(count <= PSRTI_HOSTLIST_MAX);
    for (size_t i = 0; i < count; i++) {
        FUZZ_ASSERT(*names[i]);
        free(names[i]);
    }
    free(names);
    fuzz_accept();
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_size)
{
    fuzz_in_t in = { input, input_size };
    int letter = fuzz_u8(&in);
    if (letter == 'c') {
        fuzz_channel(&in);
        return 0;
    }
    if (letter == 's') {
        assignments(&in);
        return 0;
    }
    if (letter == 'h') {
        char *text = fuzz_text(&in, '\0');
        host_list(text);
        free(text);
        return 0;
    }
    size_t size = in.left;
    uint8_t *data = fuzz_bytes(&in, size);
    if (letter == 'j') job_file(data, size);
    if (letter == 'b') bootstrap(data, size);
    if (letter == 'f') facts(data, size);
    free(data);
    return 0;
}

/* ---- seeds ------------------------------------------------------------------------------------- */

static void seed(const char *name, const char *text) { fuzz_seed(name, text, strlen(text)); }

static void seed_wire(const char *name, char letter, psrti_wire_out_t *w)
{
    fuzz_out_t out = { .size = 0 };
    fuzz_put8(&out, (unsigned)letter);
    fuzz_put(&out, w->data, w->len);
    fuzz_seed(name, out.data, out.size);
    psrti_wire_clear(w);
}

static void seed_agent(void)
{
    char *addresses[] = { (char *)"10.0.0.1", (char *)"fe80::1%eth0", NULL };
    psrti_bootstrap_t b = { .key = { .secret = { 1, 2, 3 }, .nonce = { 4, 5, 6 } },
                            .host = 1,
                            .open_ms = 10000,
                            .directory = (char *)"/home/me",
                            .addresses = addresses,
                            .port = 7000 };
    psrti_facts_t f = { .version = "0.1.0", .host = "alpha", .cores = 8, .memlock = UINT64_MAX };
    psrti_wire_out_t w = { .data = NULL };
    snprintf(f.netifs[0].interface, sizeof f.netifs[0].interface, "eth0");
    snprintf(f.netifs[0].address, sizeof f.netifs[0].address, "10.0.0.1");
    f.netifs[0].prefix = 24;
    f.netif_count = 1;
    psrti_bootstrap_write(&b, &w);
    seed_wire("bootstrap", 'b', &w);
    psrti_facts_write(&f, &w);
    seed_wire("facts", 'f', &w);
}

void fuzz_seeds(void)
{
    seed("job",
         "j{\"name\":\"mnist\",\"roles\":{\"worker\":{\"count\":2,\"argv\":[\"./train\"]}}}");
    seed(
        "job-hosts",
        "j{\"hosts\":[\"h1:4\",\"me@h2\",{\"name\":\"h3\",\"port\":22,\"slots\":8,\"mem\":\"16g\","
        "\"attributes\":{\"rack\":\"r1\"}}],\"env\":{\"A\":\"b=c\"},\"timeout\":\"2h\",\"grace\":0}");
    seed(
        "job-role",
        "j{\"roles\":{\"ps\":{\"count\":2},\"worker\":{\"command\":\"./train {task_index}\",\"cpus\":"
        "1.5,\"shell\":true,\"count\":4,\"min\":1,\"ports\":2,\"restart\":{\"when\":\"on-failure\",\"limit\":3,"
        "\"codes\":[1]},\"success\":\"any\",\"volumes\":[{\"source\":\"/a\",\"target\":\"/b\"}],\"constraints\":[[\"rack\","
        "\"UNIQUE\"]]}}}");
    seed("set", "sroles.worker.cpus=2\nroles.worker.env.A=b\ntimeout=5s\nquiet=true");
    seed("hosts", "hb04-[09-10],gpu[1,3]c[0-1]");
    seed_agent();
    fuzz_channel_seeds();
}
