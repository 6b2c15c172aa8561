/* SPDX-License-Identifier: Apache-2.0 */
/* Input: up to 12 lines NAME=VALUE, as the environment and the flags of the launcher bring them: each is set, its
 * value goes through every parser of numbers, and at the end the place in the job is read. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/psrt.h>

#include "base/config.h"
#include "base/log.h"
#include "fuzz.h"
#include "runtime/api/api.h"

#define LINES 12u /* each costs the search for a name that is like it */

/* ---- parsers ----------------------------------------------------------------------------------- */

static int parses(const char *text, uint64_t want,
                  psrt_status_t (*parse)(const char *text, uint64_t *out))
{
    uint64_t got;
    return parse(text, &got) == PSRT_OK && got == want;
}

/* The plain number, and the same in its smallest unit, is the number. */
static void check_quantity(const char *text, const char *unit,
                           psrt_status_t (*parse)(const char *text, uint64_t *out))
{
    char again[32];
    uint64_t value = 4711;
    if (parse(text, &value) != PSRT_OK) {
        FUZZ_ASSERT(value == 4711);
        return;
    }
    snprintf(again, sizeof again, "%" PRIu64 "%s", value, unit);
    FUZZ_ASSERT(parses(again, value, parse));
    FUZZ_ASSERT(text[0] >= '0' && text[0] <= '9');
}

static void check_integer(const char *text)
{
    char again[32];
    int64_t value, positive = 4711;
    psrt_status_t rc = psrti_parse_i64(text, 0, INT64_MAX, &positive);
    if (psrti_parse_i64(text, INT64_MIN, INT64_MAX, &value) != PSRT_OK) {
        FUZZ_ASSERT(rc != PSRT_OK && positive == 4711);
        return;
    }
    FUZZ_ASSERT(value == strtoll(text, NULL, 10));
    FUZZ_ASSERT((rc == PSRT_OK) == (text[0] != '-'));
    snprintf(again, sizeof again, "%" PRId64, value);
    FUZZ_ASSERT(psrti_parse_i64(again, value, value, &value) == PSRT_OK);
}

static void check_real(const char *text)
{
    char again[64];
    double value, same;
    if (psrti_parse_f64(text, &value) != PSRT_OK) return;
    FUZZ_ASSERT(isfinite(value));
    snprintf(again, sizeof again, "%.17g", value);
    FUZZ_ASSERT(psrti_parse_f64(again, &same) == PSRT_OK && same == value);
}

/* ---- settings ---------------------------------------------------------------------------------- */

static psrti_config_id_t id_of(const char *name)
{
    unsigned id = 0;
    while (id < PSRTI_CONF_COUNT &&
           strcmp(psrti_config_entry((psrti_config_id_t)id)->name, name) != 0)
        id++;
    return (psrti_config_id_t)id;
}

/* A value that is refused changes nothing; one that is taken is taken again, and reads the same. */
static int set(psrti_config_t *config, const char *name, const char *value)
{
    psrti_config_id_t id = id_of(name);
    int known = id < PSRTI_CONF_COUNT;
    int64_t number = known ? psrti_config_int(config, id) : 0;
    char *text = known ? strdup(psrti_config_value(config, id)) : NULL;
    psrt_status_t rc = psrti_config_set(config, name, value);
    if (rc == PSRT_OK) {
        FUZZ_ASSERT(known && strcmp(psrti_config_value(config, id), value) == 0);
        number = psrti_config_int(config, id);
        FUZZ_ASSERT(psrti_config_set(config, name, value) == PSRT_OK);
        FUZZ_ASSERT(psrti_config_int(config, id) == number && number >= -1);
    } else {
        FUZZ_ASSERT(rc == PSRT_ERR_INVALID && *psrt_last_error());
        if (known)
            FUZZ_ASSERT(psrti_config_int(config, id) == number &&
                        strcmp(psrti_config_value(config, id), text) == 0);
    }
    free(text);
    return rc == PSRT_OK;
}

static void check_place(const psrti_config_t *config, const char *role)
{
    psrti_place_t place = { 0 };
    if (psrti_api_place(config, role, &place) != PSRT_OK) {
        FUZZ_ASSERT(*psrt_last_error());
        return;
    }
    FUZZ_ASSERT(place.workers >= 1 && place.coordinator);
    if (strcmp(role, "worker") == 0) FUZZ_ASSERT(place.rank < place.workers);
    if (strcmp(role, "server") == 0) FUZZ_ASSERT(place.rank < place.servers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in_t in = { data, size };
    psrti_config_t *config;
    FUZZ_ASSERT(psrti_config_create(&config) == PSRT_OK);
    int taken = in.left > 0;
    for (unsigned lines = 0; in.left && lines < LINES; lines++) {
        char *line = fuzz_text(&in, '\n'), *value = strchr(line, '=');
        if (value) *value++ = '\0';
        const char *text = value ? value : line;
        check_quantity(text, "B", psrti_parse_size);
        check_quantity(text, "ns", psrti_parse_duration);
        check_integer(text);
        check_real(text);
        taken &= set(config, line, text);
        free(line);
    }
    if (taken) fuzz_accept();
    check_place(config, "worker");
    check_place(config, "server");
    check_place(config, "coordinator");
    psrti_config_destroy(config);
    psrti_log_set_level(PSRT_LOG_DEBUG); /* PSRT_LOG_LEVEL sets that of the process */
    return 0;
}

static void seed(const char *name, const char *text) { fuzz_seed(name, text, strlen(text)); }

void fuzz_seeds(void)
{
    for (unsigned first = 0; first < PSRTI_CONF_COUNT; first += LINES) {
        char text[2048] = "", name[32];
        size_t pos = 0;
        for (unsigned id = first; id < PSRTI_CONF_COUNT && id < first + LINES; id++) {
            const psrti_config_entry_t *entry = psrti_config_entry((psrti_config_id_t)id);
            (void)psrti_append(text, sizeof text, &pos, "%s=%s\n", entry->name, entry->def);
        }
        snprintf(name, sizeof name, "defaults-%u", first / LINES);
        seed(name, text);
    }
    seed("cluster", "PSRT_ROLE=server\nPSRT_RANK=1\nPSRT_WORKERS=4\nPSRT_SERVERS=2\n"
                    "PSRT_COORDINATOR=tcp://10.0.0.1:7000");
    seed("sizes", "PSRT_WINDOW=16MiB\nPSRT_ARENA=4k\nPSRT_WINDOW=4096B\nPSRT_WINDOW=1Gi");
    seed("durations", "PSRT_RETRY=500ms\nPSRT_LEASE=2m\nPSRT_HEARTBEAT=1.5\nPSRT_SPIN=20us\n"
                      "PSRT_RETRY=0.1s\nPSRT_RETRY=1000000ns");
    seed("choices", "PSRT_SECURITY=off\nPSRT_LOG_LEVEL=debug\nPSRT_TRANSPORT=shm,zmq");
    seed("integers", "PSRT_RANK=0\nPSRT_LISTEN_FD=-1\nPSRT_VSHARDS=65536");
}
